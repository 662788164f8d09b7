package check

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/report"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/traces/v1alpha1"
)

// denial is one reason why admission denied an object. Several policies and webhooks may have one.
type denial struct {
	report.Cause
	message string
}

// denials reads from the server's trace why admission denied an object. It returns none when
// admission did not deny it.
func (r *run) denials(ctx context.Context, a *answer) ([]denial, error) {
	if a == nil || a.ok() || a.trace == "" {
		return nil, nil
	}
	record := &v1alpha1.AdmissionTrace{}
	found, err := r.admin.do(ctx, request{method: http.MethodGet, path: "/apis/gatehouse.dev/v1alpha1/admissiontraces/" + a.trace})
	if err != nil || !found.ok() || json.Unmarshal(found.body, record) != nil {
		return nil, err
	}
	i := slices.IndexFunc(record.Steps, func(s trace.StepRecord) bool { return !s.Allowed })
	if i < 0 {
		return nil, nil
	}
	list := denialsOf(&record.Steps[i])
	// The answer has the message of one of the denials.
	said := max(0, slices.IndexFunc(list, func(d denial) bool { return strings.HasSuffix(a.status.Message, d.message) }))
	for k := range list {
		switch d := &list[k]; {
		case k == said:
			d.message = a.status.Message
		case d.Policy != "":
			d.message = fmt.Sprintf("ValidatingAdmissionPolicy '%s' with binding '%s' denied request: %s", d.Policy, d.Binding, d.message)
		}
	}
	return list, nil
}

// denialsOf returns the denials in a step.
func denialsOf(s *trace.StepRecord) []denial {
	var list []denial
	for i := range s.Judgements {
		j := &s.Judgements[i]
		for k := range j.Consequences {
			c := &j.Consequences[k]
			if !c.Denied {
				continue
			}
			list = append(list, denial{
				report.Cause{Plugin: s.Plugin, Policy: j.Policy.Configuration, Binding: c.Binding, Validation: validationOf(j, c)}, c.Message,
			})
		}
	}
	for i := range s.Calls {
		c := &s.Calls[i]
		if c.Rejected() {
			list = append(list, denial{report.Cause{Plugin: s.Plugin, Webhook: c.Webhook.Configuration + "/" + c.Webhook.Name}, c.Error})
		}
	}
	if len(list) == 0 {
		list = append(list, denial{Cause: report.Cause{Plugin: s.Plugin}})
	}
	return list
}

// validationOf returns the field of the policy whose validation has a consequence.
func validationOf(j *trace.JudgementRecord, c *trace.ConsequenceRecord) string {
	for i := range j.Evaluations {
		e := &j.Evaluations[i]
		if c.Binding != "" && !slices.Contains(e.Bindings, c.Binding) {
			continue
		}
		for _, v := range e.Validations {
			if v.Index != nil && v.Verdict != "holds" && v.Message != "" && strings.HasSuffix(c.Message, v.Message) {
				return fmt.Sprintf("spec.validations[%d]", *v.Index)
			}
		}
	}
	return ""
}

// policyWarning matches the warnings of a policy, and podSecurityWarning those of PodSecurity.
var (
	policyWarning      = regexp.MustCompile(`^Validation failed for ValidatingAdmissionPolicy '([^']+)' with binding '([^']+)': `)
	podSecurityWarning = regexp.MustCompile(`^(would violate PodSecurity|existing pods in namespace .* violate the new PodSecurity)`)
)

// warningCause returns the cause of a warning, as far as its text names it.
func warningCause(text string) report.Cause {
	if m := policyWarning.FindStringSubmatch(text); m != nil {
		return report.Cause{Plugin: admission.ValidatingPolicyName, Policy: m[1], Binding: m[2]}
	}
	if podSecurityWarning.MatchString(text) {
		return report.Cause{Plugin: "PodSecurity"}
	}
	return report.Cause{}
}

// deniedRule returns the rule of a denial. A missing namespace has a rule of its own.
func deniedRule(s *metav1.Status, d *denial) string {
	if base := ruleOf(s); base == ruleNamespace {
		return base
	}
	return d.Rule(ruleDenied)
}
