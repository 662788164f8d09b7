package admission

import (
	"context"

	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

// Snapshots has the current webhook configurations, policies, bindings and initializers. A
// *snapshot.Refresher implements it.
type Snapshots interface {
	// Acquire returns a usable snapshot for a request. If there is none, the error is the API
	// status for the client (S11.11).
	Acquire(ctx context.Context, subject snapshot.Subject) (*snapshot.Snapshot, error)
	// Static returns the snapshot of manifest files, at any time; nil if there are none (S21.17).
	Static() *snapshot.Snapshot
}

// acting is a plugin of an Engine, which adds its steps to the trace itself.
type acting interface {
	acts() *registration.Descriptor
}

// judging evaluates requests against the webhooks or policies of one source.
type judging struct {
	source    registration.Source
	snapshots Snapshots
	run       runner
	// reviews is Options.Reviews.
	reviews bool
}

// runner runs the candidates for a request; there is at least one.
type runner func(context.Context, admission.Attributes, admission.ObjectInterfaces, *snapshot.Snapshot, *plan.Request, []plan.Candidate) error

func (j *judging) acts() *registration.Descriptor { return j.source.Descriptor() }

// Handles implements admission.Interface. Webhooks and policies apply to every operation (S9.5),
// but a deletion has no object for a policy to change (S18.1).
func (j *judging) Handles(o admission.Operation) bool {
	return o != admission.Delete || j.source != registration.MutatingPolicies
}

// Rehearsed are the attributes of a rehearsal: a request whose object the server does not store.
// Webhooks and policies treat it as if the server stored the object. For all other plugins it is a
// dry run.
type Rehearsed interface {
	admission.Attributes
	// AsMade returns the attributes of the rehearsed request as a client would make it.
	AsMade() admission.Attributes
}

// decide evaluates a request. A request without a matching rule costs no allocation.
func (j *judging) decide(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if r, ok := a.(Rehearsed); ok {
		a = r.AsMade()
	}
	s, err := acquire(ctx, j.snapshots, j.source, a, j.reviews)
	if s == nil {
		return err
	}
	request := plan.NewRequest(a)
	request.Reviews = j.reviews
	candidates := plan.Candidates(s, j.source, &request, o.GetEquivalentResourceMapper())
	if len(candidates) == 0 {
		return nil
	}
	kept := request
	return j.run(ctx, a, o, s, &kept, candidates)
}

// acquire returns the snapshot of a source for a request; nil if no entry can apply to the request.
// acquire checks this before it asks for a snapshot, so that a broken webhook configuration or
// policy can be repaired while there is no snapshot (S2.40).
func acquire(ctx context.Context, from Snapshots, source registration.Source, a admission.Attributes, reviews bool) (*snapshot.Snapshot, error) {
	switch plan.ReachOf(source, a.GetKind(), a.GetResource().GroupResource(), reviews) {
	case plan.Nothing:
		return nil, nil
	case plan.Manifests:
		return from.Static(), nil
	}
	return from.Acquire(ctx, snapshot.Subject{
		Source:    source,
		Resource:  a.GetResource().GroupResource(),
		Operation: a.GetOperation(),
	})
}

// mutatingPlugin and validatingPlugin run judging in one pass.
type (
	mutatingPlugin   struct{ judging }
	validatingPlugin struct{ judging }
)

var (
	_ admission.MutationInterface   = (*mutatingPlugin)(nil)
	_ admission.ValidationInterface = (*validatingPlugin)(nil)
)

func (p *mutatingPlugin) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	return p.decide(ctx, a, o)
}

func (p *validatingPlugin) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	return p.decide(ctx, a, o)
}
