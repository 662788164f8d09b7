package check

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/order"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
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
	group.SetLimit(order.Parallel)
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

// predicts reports whether an object is a registration of webhooks or initializers that are predicted.
func (r *run) predicts(u *unstructured.Unstructured) bool {
	return u.GroupVersionKind().Group == registration.GroupName && r.explains(u)
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

// calls records the webhooks that would be called for an object, and the rejections that need no call.
func (r *run) calls(ctx context.Context, world *offline.World, t *task) error {
	q := &offline.Request{Operation: "CREATE", Kind: t.kind, Namespace: t.namespace, Name: t.name, Object: t.read(t.answer.Body)}
	switch {
	case t.removed:
		q.Operation, q.Object, q.Old = "DELETE", nil, t.read(t.current)
	case t.stored:
		q.Operation, q.Old = "UPDATE", t.read(t.current)
	default:
		q.Object.SetResourceVersion("")
	}
	if r.As != "" {
		q.User = &user.DefaultInfo{Name: r.As, Groups: append(slices.Clone(r.Groups), user.AllAuthenticated)}
	}
	p, err := r.planFor(ctx, world, t, q)
	if p == nil {
		return err
	}
	for s := range p.Acting() {
		call := Call{Webhook: s.Entry.String(), Plugin: s.Plugin, FailurePolicy: s.FailurePolicy}
		switch {
		case s.Effect == plan.Call || s.Effect == plan.Pend:
		case s.Effect == plan.Reject && !r.appliedBefore(t, s.Entry):
			r.rejectUncalled(t, p, s)
			continue
		case s.Effect == plan.Undecided || s.Effect == plan.Reject || s.Effect == plan.Ignored:
			if s.Reason != nil {
				call.Unknown = s.Reason.Message
			}
		default:
			continue
		}
		t.result.Webhooks = append(t.result.Webhooks, call)
	}
	for i := range t.dependents {
		d := &t.dependents[i]
		object, err := d.Unstructured()
		if err != nil {
			return err
		}
		q := &offline.Request{Operation: "CREATE", Kind: r.stage.Kinds().Of(object.GroupVersionKind()), Namespace: t.namespace, Name: object.GetName(), Object: object, User: d.By}
		p, err := r.planFor(ctx, world, t, q)
		if p == nil {
			return err
		}
		for s := range p.Acting() {
			if s.Effect == plan.Reject {
				cause := causeOf(s)
				r.mu.Lock()
				r.report.addFindingWithCause(t, report.Error, cause.Description(ruleDependent), strings.Join(d.Template, "."), d.rejected(s.Reason.Message), cause)
				r.mu.Unlock()
				break
			}
		}
	}
	return nil
}

// planFor plans a request. If that is not possible, the plan is nil and the report has a note; the error reports the
// end of ctx.
func (r *run) planFor(ctx context.Context, world *offline.World, t *task, q *offline.Request) (*plan.Plan, error) {
	p, err := world.Plan(ctx, q)
	if err == nil {
		return p, nil
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Notes = append(r.report.Notes, fmt.Sprintf("the webhooks of %s at %s:%d: %v", t.result.Title(), t.object.File, t.object.Line, err))
	return nil, nil
}

// read returns the object of a response, as the later plugins of admission see it. For a response without the object,
// such as a Status, it returns a copy of the sent object.
func (t *task) read(body []byte) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	if len(body) > 0 && u.UnmarshalJSON(body) == nil && u.GroupVersionKind() == t.sent.GroupVersionKind() {
		return u
	}
	return t.sent.DeepCopy()
}

// appliedBefore reports whether an object of the files is applied before a registration of the files, so that the
// registration does not decide about it.
func (r *run) appliedBefore(t *task, e *plan.Entry) bool {
	return !t.removed && t.phase <= order.Registrations && slices.ContainsFunc(r.tasks, func(other *task) bool {
		return other.phase == order.Registrations && !other.stored && other.name == e.Configuration && other.sent.GetKind() == e.Kind
	})
}

// rejectUncalled reports the rejection of an object by a step of its plan.
func (r *run) rejectUncalled(t *task, p *plan.Plan, s *plan.Step) {
	r.mu.Lock()
	defer r.mu.Unlock()
	message := cmp.Or(p.Rejection, s.Reason.Message)
	if p.UpToMutation() {
		message += ", unless a mutating webhook changes the object"
	}
	cause := causeOf(s)
	t.result.Verdict, t.result.Message, t.result.Cause = Rejected, message, cause
	if s.Reason.Code == plan.ConditionFailed.String() {
		t.result.Code, t.result.Reason = http.StatusForbidden, string(metav1.StatusReasonForbidden)
	}
	if t.removed {
		message = deletionRejected + message
	}
	r.report.addFindingWithCause(t, report.Error, cause.Description(ruleDenied), "", message, cause)
}

// causeOf returns the webhook of a step as a cause.
func causeOf(s *plan.Step) report.Cause {
	return report.Cause{Plugin: s.Plugin, Webhook: s.Entry.String()}
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
