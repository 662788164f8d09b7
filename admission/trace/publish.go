package trace

import (
	"context"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// Publisher lets every reader read traces. It remembers what it logged lately, so
// there is one for all requests. It is safe for concurrent use; its zero value is
// ready.
type Publisher struct {
	complaints complaints
}

// Publish lets every reader read the trace: metrics, the audit event behind a,
// the warnings of the response, the log, the latency trackers of ctx. Call it
// once, when the trace is complete.
func (p *Publisher) Publish(ctx context.Context, a admission.Attributes, t *Trace) {
	count(ctx, a, t)
	p.annotate(ctx, a, t)
	for i := range t.Calls {
		c := &t.Calls[i]
		for _, w := range c.Warnings {
			warning.AddWarning(ctx, "", w)
		}
		p.logForgiven(ctx, t, c)
	}
	for i := range t.Conditions {
		if c := &t.Conditions[i]; c.Err != nil {
			p.complaints.log(ctx, c.Hook, c.Err, "Match conditions failed and the webhook was not called: its failurePolicy is Ignore",
				"operation", t.Request.Operation, "resource", t.Request.Resource)
		}
	}
	track(ctx, t)
}

// logForgiven writes down what nobody else will: a failure that rejects the
// request is in the response.
func (p *Publisher) logForgiven(ctx context.Context, t *Trace, c *Call) {
	switch {
	case c.Panic != nil:
		// A panic is a fault of this server, whatever became of the request.
		klog.FromContext(ctx).Error(c.Err, "Calling a webhook panicked",
			"webhook", c.Hook.Name, "configuration", c.Hook.Configuration, "failurePolicy", c.Hook.FailurePolicy, "stack", string(c.Stack))
	case c.Ignored && c.ClientGone:
		klog.FromContext(ctx).V(2).Info("Webhook call was given up: the client is gone",
			"webhook", c.Hook.Name, "configuration", c.Hook.Configuration)
	case c.Ignored && c.Skipped:
		// That its server is skipped was logged when that began.
		klog.FromContext(ctx).V(2).Info("Webhook was skipped: its failurePolicy is Ignore",
			"webhook", c.Hook.Name, "configuration", c.Hook.Configuration, "err", c.Err)
	case c.Ignored:
		p.complaints.log(ctx, c.Hook, c.Err, "Webhook failed and was ignored: its failurePolicy is Ignore",
			"operation", t.Request.Operation, "resource", t.Request.Resource)
	}
}

func track(ctx context.Context, t *Trace) {
	trackers, ok := request.LatencyTrackersFrom(ctx)
	if !ok {
		return
	}
	tracker := trackers.ValidatingWebhookTracker
	if t.Source == registration.Mutating {
		tracker = trackers.MutatingWebhookTracker
	}
	for i := range t.Calls {
		if t.Calls[i].UID != "" {
			tracker.TrackDuration(t.Calls[i].Latency)
		}
	}
}
