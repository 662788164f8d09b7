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

// webhookPlugin runs the hooks of one source. It handles every operation (S9.5).
type webhookPlugin struct {
	source     registration.Source
	gate       snapshot.Gate
	snapshots  Snapshots
	dispatcher *dispatch.Dispatcher
}

func (p *webhookPlugin) Handles(admission.Operation) bool { return true }

// run judges a request. One that no rule matches costs no allocation.
func (p *webhookPlugin) run(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	// Before there needs to be a snapshot, so that a broken registration can be
	// mended (S2.40).
	if plan.Exempt(a.GetKind(), a.GetResource().GroupResource()) {
		return nil
	}
	s, err := p.snapshots.Acquire(ctx, snapshot.Subject{
		Gate:      p.gate,
		Resource:  a.GetResource().GroupResource(),
		Operation: a.GetOperation(),
	})
	if err != nil {
		return err
	}
	request := plan.NewRequest(a)
	steps := plan.For(s, p.source, &request, o.GetEquivalentResourceMapper())
	if len(steps) == 0 {
		return nil
	}
	kept := request
	return p.dispatcher.Run(ctx, a, o, s, &kept, steps)
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
