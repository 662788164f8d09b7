package admission

import (
	"context"

	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

// Snapshots has the registrations in force. A *snapshot.Refresher is one.
type Snapshots interface {
	// Acquire returns a snapshot that may judge a request. When there is none, the error is the
	// API status that the client gets (S11.11).
	Acquire(ctx context.Context, subject snapshot.Subject) (*snapshot.Snapshot, error)
	// Static returns the registrations of manifest files, at any time; nil when there are none
	// (S21.17).
	Static() *snapshot.Snapshot
}

// acting is a plugin of an Engine. It acts on registrations, and adds its steps to the trace
// itself.
type acting interface {
	acts() *registration.Descriptor
}

// judging judges requests by the registrations of one source, which are hooks or policies.
type judging struct {
	source    registration.Source
	snapshots Snapshots
	run       runner
	// reviews is that of Options.
	reviews bool
}

// runner runs the candidates of a request; there is at least one.
type runner func(context.Context, admission.Attributes, admission.ObjectInterfaces, *snapshot.Snapshot, *plan.Request, []plan.Candidate) error

func (j *judging) acts() *registration.Descriptor { return j.source.Descriptor() }

// Handles implements admission.Interface. Webhooks and policies see every operation
// (S9.5), but a deletion has no object for a policy to change (S18.1).
func (j *judging) Handles(o admission.Operation) bool {
	return o != admission.Delete || j.source != registration.MutatingPolicies
}

// Rehearsed are the attributes of a rehearsal: a request whose object the server does not
// store. Registrations judge it as if the server stored the object. To all other plugins it is
// a dry run.
type Rehearsed interface {
	admission.Attributes
	// AsMade returns the attributes of the request that is rehearsed, as its client would make
	// it.
	AsMade() admission.Attributes
}

// decide judges a request. A request that no rule matches costs no allocation.
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

// acquire returns the snapshot that a source judges a request by, nil when no registration can
// apply to the request. acquire checks this before it asks for a snapshot, so that a broken
// registration can be repaired while there is no snapshot (S2.40).
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

// mutatingPlugin and validatingPlugin put judging into a pass.
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
