package admission

import (
	"context"

	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/dispatch"
	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

// Snapshots has the registrations in force. A *snapshot.Refresher is one.
type Snapshots interface {
	// Acquire returns a snapshot that a request may be judged by. The error is
	// the API status that the client gets when there is none (S11.11).
	Acquire(ctx context.Context, subject snapshot.Subject) (*snapshot.Snapshot, error)
}

// acting is a plugin of an Engine: one that acts on what is registered, and adds what it
// does to the trace itself.
type acting interface {
	acts() *registration.Descriptor
}

// webhookPlugin runs the hooks of one source. It handles every operation (S9.5).
type webhookPlugin struct {
	source     registration.Source
	snapshots  Snapshots
	dispatcher *dispatch.Dispatcher
}

func (p *webhookPlugin) acts() *registration.Descriptor { return p.source.Descriptor() }

func (p *webhookPlugin) Handles(admission.Operation) bool { return true }

// run judges a request. One that no rule matches costs no allocation.
func (p *webhookPlugin) run(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	s, err := acquire(ctx, p.snapshots, p.source, a)
	if s == nil {
		return err
	}
	request := plan.NewRequest(a)
	candidates := plan.Candidates(s, p.source, &request, o.GetEquivalentResourceMapper())
	if len(candidates) == 0 {
		return nil
	}
	kept := request
	return p.dispatcher.Run(ctx, a, o, s, &kept, candidates)
}

// acquire returns the snapshot that a source judges a request by, nil when nothing that
// is registered applies to it. That is asked first, so that a broken registration can be
// repaired while there is no snapshot (S2.40).
func acquire(ctx context.Context, from Snapshots, source registration.Source, a admission.Attributes) (*snapshot.Snapshot, error) {
	if plan.ExemptFrom(source, a.GetKind(), a.GetResource().GroupResource()) {
		return nil, nil
	}
	return from.Acquire(ctx, snapshot.Subject{
		Source:    source,
		Resource:  a.GetResource().GroupResource(),
		Operation: a.GetOperation(),
	})
}

// mutatingPlugin and validatingPlugin put a webhookPlugin into a pass.
type (
	mutatingPlugin   struct{ webhookPlugin }
	validatingPlugin struct{ webhookPlugin }
)

var (
	_ admission.MutationInterface   = (*mutatingPlugin)(nil)
	_ admission.ValidationInterface = (*validatingPlugin)(nil)
)

func (p *mutatingPlugin) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	return p.run(ctx, a, o)
}

func (p *validatingPlugin) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	return p.run(ctx, a, o)
}
