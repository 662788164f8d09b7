package dispatch

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/gatehouse-dev/gatehouse/admission/call"
	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/review"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
)

// Caller reaches one webhook. A *call.Caller is one.
type Caller interface {
	Call(ctx context.Context, inv *call.Invocation) (*review.Response, *call.Error)
}

var errNoSideEffects = errors.New("Webhook SideEffects is nil") //nolint:staticcheck // The words of upstream, capital letter included.

// ready is a step with everything that a call of its hook needs.
type ready struct {
	step *plan.Step
	form *form
	// body is nil when the hook knows no version of the review.
	body *review.Body
}

// prepare makes a step ready. The error is an API status and does not depend on
// the failure policy (S2.27).
func (r *run) prepare(step *plan.Step) (ready, error) {
	f, err := r.objects.as(step.Kind)
	if err != nil {
		return ready{}, apierrors.NewInternalError(fmt.Errorf("converting to %s for admission webhook %q: %w", step.Kind, step.Hook.Name, err))
	}
	version, ok := review.Choose(step.Hook.ReviewVersions)
	if !ok {
		return ready{step: step, form: f}, nil
	}
	for _, b := range f.bodies {
		if b.version == version && b.resource == step.Resource && b.subresource == step.Subresource {
			return ready{step, f, b.body}, nil
		}
	}
	payload, err := r.objects.encode(f)
	if err != nil {
		return ready{}, apierrors.NewInternalError(fmt.Errorf("calling admission webhook %q: %w", step.Hook.Name, err))
	}
	body := review.NewBody(version, &review.Request{
		Kind:               step.Kind,
		Resource:           step.Resource,
		Subresource:        step.Subresource,
		RequestKind:        r.request.Kind,
		RequestResource:    r.request.Resource,
		RequestSubresource: r.request.Subresource,
		Name:               r.request.Name,
		Namespace:          r.request.Namespace,
		Operation:          string(r.request.Operation),
		User:               r.request.User,
		DryRun:             r.request.DryRun,
	}, payload)
	f.bodies = append(f.bodies, knownBody{version, step.Resource, step.Subresource, body})
	return ready{step, f, body}, nil
}

// ask calls a hook and reads its answer, except for the patch. It writes down
// what happened in c, and returns the response of a hook that allows the request,
// or what the call alone would reject it with.
//
// It does not touch the run's objects: several hooks may be asked at once. later
// is as in budget.
func (r *run) ask(ctx context.Context, to ready, c *trace.Call, later int) (response *review.Response, status *apierrors.StatusError) {
	c.Start = time.Now()
	defer func() {
		c.Latency = time.Since(c.Start)
		if p := recover(); p != nil {
			response, status = nil, panicked(c, p)
		}
	}()
	h := c.Hook
	if r.request.DryRun && !h.SupportsDryRun() {
		if h.SideEffects == "" && h.Source != registration.External {
			return nil, fail(c, call.SideEffects, errNoSideEffects)
		}
		return nil, refuse(c, apierrors.NewBadRequest(fmt.Sprintf("admission webhook %q does not support dry run", h.Name)))
	}
	if to.body != nil {
		c.UID = uuid.NewUUID()
		c.ReviewVersion = string(to.body.Version())
	}
	ctx, cancel := r.budget.limit(ctx, c.Start, h, later)
	defer cancel()
	ctx, end := trace.StartSpan(ctx, &r.trace.Request, c)
	defer end()
	response, callErr := r.options.Caller.Call(ctx, &call.Invocation{
		Hook:     h,
		Body:     to.body,
		UID:      c.UID,
		Mutating: h.Source == registration.Mutating,
	})
	if callErr != nil {
		return nil, failWith(c, callErr)
	}
	c.Warnings, c.AuditAnnotations = response.Warnings, response.AuditAnnotations
	if !response.Allowed {
		status = review.Denial(h.Name, response)
		c.Verdict, c.Code, c.Err = trace.Denied, int(status.ErrStatus.Code), status
		return nil, status
	}
	c.Code = 200
	return response, nil
}

// fail records that a hook failed, and returns the rejection that is due if its
// failure policy is Fail.
func fail(c *trace.Call, class call.Class, cause error) *apierrors.StatusError {
	return failWith(c, call.Failed(c.Hook, class, cause))
}

func failWith(c *trace.Call, err *call.Error) *apierrors.StatusError {
	c.Verdict, c.Class, c.Code, c.Err = trace.Failed, err.Class.String(), int(err.Code), err
	c.ClientGone, c.Skipped = err.ClientGone, err.Class == call.CircuitOpen
	return err.Status()
}

// refuse records that the request is rejected whatever the failure policy.
func refuse(c *trace.Call, status *apierrors.StatusError) *apierrors.StatusError {
	c.Verdict, c.Code, c.Err = trace.Refused, 0, status
	return status
}

// panicked records that calling a hook panicked (S7.12).
func panicked(c *trace.Call, value any) *apierrors.StatusError {
	c.Panic, c.Stack = value, debug.Stack()
	return fail(c, call.Panic, fmt.Errorf("%v", value))
}
