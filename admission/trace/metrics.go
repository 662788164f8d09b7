package trace

import (
	"context"
	"sync"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/metrics"
	basemetrics "k8s.io/component-base/metrics"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/kit/metric"
)

// callType returns the label type of the call metrics. Other metrics have different values;
// dashboards rely on the difference (S10.1).
func callType(p registration.Pass) string {
	if p == registration.MutatingPass {
		return "admit"
	}
	return "validating"
}

func exclusionType(p registration.Pass) string {
	if p == registration.MutatingPass {
		return "admit"
	}
	return "validate"
}

// conditionKind is the label kind of the match condition metrics.
const conditionKind = "webhook"

// count updates the metrics of calls and match conditions (S10.2 to S10.4). The Chain of package
// admission updates the metrics of plugins and passes.
func count(ctx context.Context, a admission.Attributes, t *Run) {
	pass := t.Source.Descriptor().Pass
	kind := callType(pass)
	operation := string(a.GetOperation())
	for i := range t.Calls {
		c := &t.Calls[i]
		if c.sparedBefore() {
			continue
		}
		name := c.Entry.Name
		rejected := c.Rejected()
		metrics.Metrics.ObserveWebhook(ctx, name, c.Latency, rejected, a, kind, c.Code)
		if c.ClientGone {
			continue
		}
		if c.Ignored {
			metrics.Metrics.ObserveWebhookFailOpen(ctx, name, kind)
		}
		if rejected {
			metrics.Metrics.ObserveWebhookRejection(ctx, name, kind, operation, errorType(c.Verdict), c.Code)
		}
	}
	for i := range t.Discarded {
		c := &t.Discarded[i]
		if c.Sent {
			discarded().WithLabelValues(c.Entry.Name, kind, c.Fate.String()).Inc()
		}
	}
	for _, c := range t.Conditions {
		name := c.Entry.Name
		metrics.Metrics.ObserveMatchConditionEvaluationTime(ctx, c.Latency, name, conditionKind, kind, operation)
		for range c.Errors {
			metrics.Metrics.ObserveMatchConditionEvalError(ctx, name, conditionKind, kind, operation)
		}
		if c.Excluded {
			metrics.Metrics.ObserveMatchConditionExclusion(ctx, name, conditionKind, exclusionType(pass), operation)
		}
	}
}

func errorType(v Verdict) metrics.WebhookRejectionErrorType {
	switch v {
	case Denied:
		return metrics.WebhookRejectionNoError
	case Failed:
		return metrics.WebhookRejectionCallingWebhookError
	default:
		return metrics.WebhookRejectionAPIServerInternalError
	}
}

// discarded counts the answers that were not used. The other metrics count only answers that were
// used.
var discarded = ownCounter("admission_webhook_discarded_reviews_total",
	"Reviews sent to webhooks ahead of their turn whose answers were discarded, by webhook, type (admit or validating) and fate: Superseded when the object changed before the turn, NotReached when the request was rejected before it.",
	"name", "type", "fate")

// ownCounter is a counter that k8s.io/apiserver does not have. It is registered when it first
// counts.
func ownCounter(name, help string, labels ...string) func() *basemetrics.CounterVec {
	return sync.OnceValue(func() *basemetrics.CounterVec {
		return metric.Registered(metric.Counter(name, help, labels...))
	})
}
