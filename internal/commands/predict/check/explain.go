package check

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/stage"
)

// explain predicts which webhooks would be called for the objects that were accepted without them, and which
// initializers would have to act.
func (r *run) explain(ctx context.Context) error {
	world, err := r.stage.Planner(ctx)
	if err != nil {
		return err
	}
	// The server has already evaluated the policies.
	world.Registrations.Objects = slices.DeleteFunc(world.Registrations.Objects, func(o runtime.Object) bool {
		return !r.explains(o)
	})
	if len(world.Registrations.Objects) == 0 {
		return nil
	}
	notes := len(r.report.Notes)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(stage.Parallel)
	for _, t := range slices.Concat(r.tasks, r.removed) {
		if t.accepted() && !t.skipped && !t.unchanged {
			group.Go(func() error {
				defer r.planned(t)
				return r.calls(ctx, world, t)
			})
		} else {
			r.planned(t)
		}
	}
	if err := group.Wait(); err != nil {
		return err
	}
	slices.Sort(r.report.Notes[notes:])
	r.report.countWebhooks()
	return nil
}

// explains reports whether a registration is predicted because it did not act in this server.
func (r *run) explains(o runtime.Object) bool {
	switch o.GetObjectKind().GroupVersionKind().Kind {
	case registration.MutatingKind, registration.ValidatingKind, registration.ExternalKind:
		return !r.Call
	case registration.InitializerKind:
		return true
	}
	return false
}

// planned counts an object of the files for Progress.
func (r *run) planned(t *task) {
	if !t.removed {
		r.did(planning, 1)
	}
}

// calls notes which webhooks would be called for an object.
func (r *run) calls(ctx context.Context, world *offline.World, t *task) error {
	q := &offline.Request{Operation: "CREATE", Kind: t.kind, Namespace: t.namespace, Name: t.name, Object: t.sent}
	switch {
	case t.removed:
		q.Operation, q.Object, q.Old = "DELETE", nil, t.sent
	case t.stored:
		q.Operation, q.Old = "UPDATE", t.sent
		if old := (&unstructured.Unstructured{}); len(t.current) > 0 && old.UnmarshalJSON(t.current) == nil && old.GroupVersionKind() == t.sent.GroupVersionKind() {
			q.Old = old
		}
	}
	if r.As != "" {
		q.User = &user.DefaultInfo{Name: r.As, Groups: append(slices.Clone(r.Groups), user.AllAuthenticated)}
	}
	p, err := world.Plan(ctx, q)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.report.Notes = append(r.report.Notes, fmt.Sprintf("the webhooks of %s at %s:%d: %v", t.result.Title(), t.object.File, t.object.Line, err))
		return nil
	}
	for s := range p.Acting() {
		call := Call{Webhook: s.Entry.String(), Plugin: s.Plugin, FailurePolicy: s.FailurePolicy}
		switch s.Effect {
		case plan.Call, plan.Pend:
		case plan.Undecided, plan.Reject, plan.Ignored:
			if s.Reason != nil {
				call.Unknown = s.Reason.Message
			}
		default:
			continue
		}
		t.result.Webhooks = append(t.result.Webhooks, call)
	}
	return nil
}

// countWebhooks counts, for each webhook, the objects for which it would be called.
func (r *Report) countWebhooks() {
	for _, o := range r.Objects {
		for _, c := range o.Webhooks {
			c.Unknown = ""
			i := slices.IndexFunc(r.Webhooks, func(w Webhook) bool { return w.Call == c })
			if i < 0 {
				i = len(r.Webhooks)
				r.Webhooks = append(r.Webhooks, Webhook{Call: c})
			}
			r.Webhooks[i].Objects++
		}
	}
	slices.SortFunc(r.Webhooks, func(a, b Webhook) int {
		return cmp.Or(strings.Compare(a.Plugin, b.Plugin), strings.Compare(a.Webhook, b.Webhook))
	})
}
