package trace

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/warning"
	basemetrics "k8s.io/component-base/metrics"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// maxSpared bounds, in bytes, the part of a message in a warning or an audit annotation.
const maxSpared = 1 << 10

// Enforcement is the enforcement of a webhook or a policy for a request (S28).
type Enforcement struct {
	// Mode is Warn or Audit: the request continued as if the webhook or policy did not exist. It is
	// empty for an enforced webhook or policy.
	Mode registration.Mode `json:"mode"`
	// Rule is the name of the administrator's rule that set the mode; absent if the annotation of
	// the object set it.
	Rule string `json:"rule,omitempty"`
}

// String returns the mode and its origin, for people.
func (e Enforcement) String() string {
	if e.Rule != "" {
		return fmt.Sprintf("enforcement %s by rule %s of the server", e.Mode, e.Rule)
	}
	return fmt.Sprintf("enforcement %s", e.Mode)
}

// record returns the Enforcement for a Record; nil if the webhook or policy is enforced.
func (e Enforcement) record() *Enforcement {
	if !e.Mode.Soft() {
		return nil
	}
	return &e
}

// sparedAnnotation is the value of the audit annotation.
type sparedAnnotation struct {
	Configuration string `json:"configuration"`
	Webhook       string `json:"webhook,omitempty"`
	Binding       string `json:"binding,omitempty"`
	Mode          string `json:"mode"`
	// Would is reject or change.
	Would   string `json:"would"`
	Message string `json:"message,omitempty"`
}

// publishSpared reports the rejections and changes by webhooks and policies that are not enforced,
// in warnings, audit annotations and metrics (S28.8).
func (p *Publisher) publishSpared(ctx context.Context, a admission.Attributes, t *Run) {
	d := t.Source.Descriptor()
	n := 0
	note := func(o *registration.Origin, e Enforcement, s sparedAnnotation, metric *basemetrics.CounterVec, labels ...string) {
		s.Configuration, s.Webhook, s.Mode = o.Configuration, o.Name, string(e.Mode)
		s.Message = s.Message[:min(len(s.Message), maxSpared)]
		metric.WithLabelValues(append(labels, string(e.Mode), s.Would)...).Inc()
		if s.Would == "reject" && e.Mode == registration.ModeWarn && o.Name != "" {
			warning.AddWarning(ctx, "", fmt.Sprintf("%s %s would reject this request: %s", d.Kind, o, s.Message))
		}
		key := SparedPrefix + d.Plugin + "_round_" + strconv.Itoa(t.Round) + "_index_" + strconv.Itoa(n)
		n++
		p.add(ctx, a, o, key, encode(s), audit.LevelMetadata)
	}
	for i := range t.Calls {
		c := &t.Calls[i]
		switch {
		case c.Spared():
			note(&c.Entry, c.Enforcement, sparedAnnotation{Would: "reject", Message: c.Err.Error()}, sparedWebhooks(), c.Entry.Name, callType(d.Pass))
		case len(c.WouldPatch) > 0:
			note(&c.Entry, c.Enforcement, sparedAnnotation{Would: "change"}, sparedWebhooks(), c.Entry.Name, callType(d.Pass))
		}
	}
	for i := range t.Judgements {
		j := &t.Judgements[i]
		for k := range j.Consequences {
			if c := &j.Consequences[k]; c.Spared {
				note(&j.Policy, c.Enforcement, sparedAnnotation{Would: "reject", Message: c.Message, Binding: c.Binding}, sparedPolicies(), d.Pass.String(), j.Policy.Configuration)
			}
		}
		for k := range j.Evaluations {
			if e := &j.Evaluations[k]; e.WouldMutate() {
				note(&j.Policy, e.Enforcement, sparedAnnotation{Would: "change", Binding: e.Bindings[0]}, sparedPolicies(), d.Pass.String(), j.Policy.Configuration)
			}
		}
	}
}

// WouldMutate reports whether a mutation of a policy that is not enforced would have changed the
// object.
func (e *Evaluation) WouldMutate() bool {
	return slices.ContainsFunc(e.Mutations, func(m Mutation) bool { return len(m.WouldPatch) > 0 })
}

var sparedWebhooks = ownCounter("admission_webhook_spared_requests_total",
	"Requests that a webhook in the mode Warn or Audit would have rejected or changed, by webhook, type (admit or validating), mode (Warn or Audit) and would (reject or change).",
	"name", "type", "mode", "would")

var sparedPolicies = ownCounter("admission_policy_spared_requests_total",
	"Requests that an admission policy in the mode Warn or Audit would have rejected or changed, by type (mutating or validating), policy, mode (Warn or Audit) and would (reject or change); once for each binding and reason.",
	"type", "policy", "mode", "would")
