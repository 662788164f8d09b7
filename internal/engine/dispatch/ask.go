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
	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/engine/objects"
	"github.com/gatehouse-dev/gatehouse/internal/engine/review"
)

// Caller calls one webhook. *call.Caller implements it.
type Caller interface {
	Call(ctx context.Context, inv *call.Invocation) (*review.Response, *call.Error)
}

//lint:ignore ST1005 The words of upstream, capital letter included.
var errNoSideEffects = errors.New("Webhook SideEffects is nil")

// ready is a step with everything that is needed to call its webhook.
type ready struct {
	step *plan.Candidate
	form *objects.Form
	// body is nil if the webhook accepts no review version that this server supports.
	body *review.Body
}

// prepare makes a step ready. The error is an API status and does not depend on
// the failure policy (S2.27).
func (r *run) prepare(step *plan.Candidate) (ready, error) {
	f, err := r.objects.As(step.Kind)
	if err != nil {
		return ready{}, apierrors.NewInternalError(fmt.Errorf("converting to %s for admission webhook %q: %w", step.Kind, step.Entry.Name, err))
	}
	version, ok := step.ReviewVersion()
	if !ok {
		return ready{step: step, form: f}, nil
	}
	if body := f.Body(version, step.Resource, step.Subresource); body != nil {
		return ready{step, f, body}, nil
	}
	body, err := r.objects.NewBody(f, version, &review.Header{
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
	})
	if err != nil {
		return ready{}, apierrors.NewInternalError(fmt.Errorf("calling admission webhook %q: %w", step.Entry.Name, err))
	}
	return ready{step, f, body}, nil
}

// ask calls a webhook and reads its answer, except for the patch. It records the result in c, and
// returns the response of a webhook that allows the request, or the rejection by this call alone.
//
// ask does not access the run's objects, so several webhooks may be called concurrently. later is
// the parameter of budget.limit.
func (r *run) ask(ctx context.Context, to ready, c *trace.Call, later int) (response *review.Response, status *apierrors.StatusError) {
	c.Start = time.Now()
	defer func() {
		c.Latency = time.Since(c.Start)
		if p := recover(); p != nil {
			response, status = nil, panicked(to.step, c, p)
		}
	}()
	h := to.step.Entry.Entry
	switch reason, _ := to.step.Beforehand(r.request); reason.Code {
	case plan.NoSideEffects:
		c.Reason = reason.Code.String()
		return nil, fail(to.step, c, call.SideEffects, errNoSideEffects)
	case plan.NoDryRun:
		c.Reason = reason.Code.String()
		return nil, refuse(c, apierrors.NewBadRequest(fmt.Sprintf("admission webhook %q does not support dry run", h.Name)))
	}
	if to.body != nil {
		c.UID = uuid.NewUUID()
		c.ReviewVersion = string(to.body.Version())
	}
	ctx, cancel := r.budget.limit(ctx, c.Start, to.step, later)
	defer cancel()
	ctx, span := trace.StartSpan(ctx, r.trace, c)
	defer span.End()
	inv := &call.Invocation{
		Hook:     h,
		Body:     to.body,
		UID:      c.UID,
		Mutating: h.Source.Descriptor().Pass == registration.MutatingPass,
		Timeout:  to.step.Timeout(),
		Share:    r.share,
	}
	response, callErr := r.options.Caller.Call(ctx, inv)
	c.Sent, c.Host, c.Deprecated = inv.Facts.Sent, inv.Facts.Host, inv.Facts.Deprecated
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

// fail records that a webhook failed, and returns the rejection for failure policy Fail.
func fail(step *plan.Candidate, c *trace.Call, class call.Class, cause error) *apierrors.StatusError {
	return failWith(c, call.Failed(step.Entry.Entry, class, cause))
}

// reasons are the codes of package plan for error classes without a call.
var reasons = map[call.Class]plan.Code{
	call.NoVersion:   plan.NoReviewVersion,
	call.CircuitOpen: plan.CircuitOpen,
	call.Busy:        plan.Busy,
}

func failWith(c *trace.Call, err *call.Error) *apierrors.StatusError {
	c.Verdict, c.Class, c.Code, c.Err = trace.Failed, err.Class.String(), int(err.Code), err
	c.ClientGone, c.Skipped = err.ClientGone, err.Class == call.CircuitOpen
	if code, ok := reasons[err.Class]; ok {
		c.Reason = code.String()
	} else if err.RequestLimited && err.TimedOut {
		c.Reason = plan.OutOfTime.String()
	}
	return err.Status()
}

// refuse records that the request is rejected regardless of the failure policy.
func refuse(c *trace.Call, status *apierrors.StatusError) *apierrors.StatusError {
	c.Verdict, c.Code, c.Err = trace.Refused, 0, status
	return status
}

// panicked records a panic during the call of a webhook (S7.12).
func panicked(step *plan.Candidate, c *trace.Call, value any) *apierrors.StatusError {
	c.Panic, c.Stack = value, debug.Stack()
	return fail(step, c, call.Panic, fmt.Errorf("%v", value))
}
