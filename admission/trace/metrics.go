package trace

import (
	"context"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/metrics"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// The values of the label type differ between metrics; dashboards rely on each
// as it is (S10.1).
func callType(s registration.Source) string {
	if s == registration.Mutating {
		return "admit"
	}
	return "validating"
}

func exclusionType(s registration.Source) string {
	if s == registration.Mutating {
		return "admit"
	}
	return "validate"
}

// conditionKind is the label kind of the match condition metrics.
const conditionKind = "webhook"

// count feeds the metrics of calls and match conditions (S10.2 to S10.4). Those
// of plugins and passes are counted where the chain is built.
func count(ctx context.Context, a admission.Attributes, t *Trace) {
	kind := callType(t.Source)
	operation := string(a.GetOperation())
	for i := range t.Calls {
		c := &t.Calls[i]
		name := c.Hook.Name
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
	for _, c := range t.Conditions {
		name := c.Hook.Name
		metrics.Metrics.ObserveMatchConditionEvaluationTime(ctx, c.Latency, name, conditionKind, kind, operation)
		for range c.Errors {
			metrics.Metrics.ObserveMatchConditionEvalError(ctx, name, conditionKind, kind, operation)
		}
		if c.Excluded {
			metrics.Metrics.ObserveMatchConditionExclusion(ctx, name, conditionKind, exclusionType(t.Source), operation)
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
