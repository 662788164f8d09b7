package before

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
	"github.com/gatehouse-dev/gatehouse/internal/readers/lint"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/replicas/v1alpha1"
)

// connectTo connects to the webhooks that the plans call, and adds the verdict on each certificate to the notes
// of its step. It sends no request.
func (o *explainOptions) connectTo(ctx context.Context, found []*v1alpha1.AdmissionExplanation, shown *terminal.Progress) error {
	called := func(f func(*plan.Step)) {
		for _, e := range found {
			if e.Status.Plan == nil {
				continue
			}
			for s := range e.Status.Plan.Acting() {
				f(s)
			}
		}
	}
	any := false
	called(func(s *plan.Step) { any = any || s.Entry.Name != "" })
	if !any {
		return nil
	}
	shown.Set(command.ReadingCluster)
	world, config, err := o.world(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	known, err := world.Lint(ctx, now, nil)
	if err != nil {
		return err
	}
	addresses := map[lint.Address]*types.NamespacedName{}
	called(func(s *plan.Step) {
		if _, at, service, ok := known.Webhook(s.Entry); ok {
			addresses[at] = service
		}
	})
	c := &offline.Connector{World: known, Elsewhere: o.addresses.Of, Inside: offline.InCluster(config)}
	served := c.Present(ctx, addresses, func(done, of int) { shown.Set(fmt.Sprintf("Connected to %d of %d webhooks", done, of)) })
	called(func(s *plan.Step) {
		if config, at, _, ok := known.Webhook(s.Entry); ok {
			one := served[at]
			s.Notes = append(s.Notes, one.Verdict(config, now))
		}
	})
	return ctx.Err()
}

// reader reads the objects of a cluster or of files.
type reader func(context.Context) (*offline.World, *rest.Config, error)

// always returns a reader of objects that were read before.
func always(world *offline.World, config *rest.Config) reader {
	return func(context.Context) (*offline.World, *rest.Config, error) { return world, config, nil }
}
