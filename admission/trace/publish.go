package trace

import (
	"context"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// Publisher passes runs to every reader. It remembers recent log lines, so use one Publisher for
// all requests. It is safe for concurrent use; its zero value is ready.
type Publisher struct {
	// Observer, if set, receives a trace of each run that is published with a context without a
	// trace. The request waits for Observer, which must not change the trace. Several requests may
	// call it concurrently.
	Observer func(*Trace)

	complaints complaints
}

// Publish passes a run to every reader: metrics, the audit event behind a, the warnings of the
// response, the log, and the latency trackers of ctx. It also adds the run to the trace in ctx.
// Call Publish once, when the run is complete.
func (p *Publisher) Publish(ctx context.Context, a admission.Attributes, t *Run) {
	switch whole := FromContext(ctx); {
	case whole != nil:
		whole.Add(t.Step())
	case p.Observer != nil:
		// The request has no trace, so the run gets a trace of its own.
		alone := New()
		alone.Start = t.Start
		alone.Add(t.Step())
		alone.Finish()
		p.Observer(alone)
	}
	count(ctx, a, t)
	p.publishPolicies(ctx, a, t)
	p.publishExclusions(ctx, a, t)
	p.publishSpared(ctx, a, t)
	p.annotate(ctx, a, t)
	for i := range t.Calls {
		c := &t.Calls[i]
		if c.Enforcement.Mode != registration.ModeAudit {
			for _, w := range c.Warnings {
				warning.AddWarning(ctx, "", w)
			}
		}
		p.logForgiven(ctx, t, c)
	}
	for i := range t.Conditions {
		if c := &t.Conditions[i]; c.Err != nil {
			p.complaints.log(ctx, &c.Entry, c.Err, "Match conditions failed; skipping the webhook because its failurePolicy is Ignore",
				"operation", t.Request.Operation, "resource", t.Request.Resource)
		}
	}
	track(ctx, t)
}

// Observed reports whether the runs of a request are kept, because the context has a trace or there
// is an observer. Otherwise callers need not collect facts that only a trace contains.
func (p *Publisher) Observed(ctx context.Context) bool {
	return p.Observer != nil || FromContext(ctx) != nil
}

// logForgiven logs failures that do not reject the request. Failures that reject it are in the
// response.
func (p *Publisher) logForgiven(ctx context.Context, t *Run, c *Call) {
	switch {
	case c.Panic != nil:
		// A panic is a bug in this server, whatever the outcome of the request.
		klog.FromContext(ctx).Error(c.Err, "Panic while calling a webhook",
			"webhook", c.Entry.Name, "configuration", c.Entry.Configuration, "failurePolicy", c.FailurePolicy, "stack", string(c.Stack))
	case c.Ignored && c.ClientGone:
		klog.FromContext(ctx).V(2).Info("Webhook call cancelled because the client of the request disconnected",
			"webhook", c.Entry.Name, "configuration", c.Entry.Configuration)
	case c.Ignored && c.Skipped:
		// A line was logged when the server's circuit opened.
		klog.FromContext(ctx).V(2).Info("Webhook server is unreachable; skipping the webhook because its failurePolicy is Ignore",
			"webhook", c.Entry.Name, "configuration", c.Entry.Configuration, "err", c.Err)
	case c.Ignored:
		why := "Webhook call failed; ignoring it because failurePolicy is Ignore"
		if c.FailurePolicy != registration.Ignore {
			why = "Webhook call failed; ignoring it because an exclusion rule says so"
		}
		p.complaints.log(ctx, &c.Entry, c.Err, why,
			"operation", t.Request.Operation, "resource", t.Request.Resource)
	}
}

func track(ctx context.Context, t *Run) {
	trackers, ok := request.LatencyTrackersFrom(ctx)
	if !ok {
		return
	}
	tracker := trackers.ValidatingWebhookTracker
	if t.Source.Descriptor().Pass == registration.MutatingPass {
		tracker = trackers.MutatingWebhookTracker
	}
	for i := range t.Calls {
		if t.Calls[i].UID != "" {
			tracker.TrackDuration(t.Calls[i].Latency)
		}
	}
}
