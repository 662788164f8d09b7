package check

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/report"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/traces/v1alpha1"
)

// denial is one reason why admission denied an object. Several policies and webhooks may have one.
type denial struct {
	report.Cause
	message string
}

// denials reads from the server's trace why admission denied an object, and what it warned of. It
// returns none when admission did not deny the object.
func (r *run) denials(ctx context.Context, a *answer) ([]denial, error) {
	if a == nil || a.trace == "" || a.ok() && len(a.warnings) == 0 {
		return nil, nil
	}
	record := &v1alpha1.AdmissionTrace{}
	found, err := r.admin.do(ctx, request{method: http.MethodGet, path: "/apis/gatehouse.dev/v1alpha1/admissiontraces/" + a.trace})
	if err != nil || !found.ok() || json.Unmarshal(found.body, record) != nil {
		return nil, err
	}
	for act := range record.Acts() {
		if act.Deed == trace.Notes || act.Deed == trace.WouldReject {
			a.warned = append(a.warned, act)
		}
	}
	if a.ok() {
		return nil, nil
	}
	var list []denial
	for act := range record.Rejections() {
		d := denial{report.Cause{Plugin: act.Step.Plugin, Binding: act.Binding}, act.Message}
		switch act.Kind {
		case trace.ByPolicy:
			d.Policy = act.By
			if act.Index != nil {
				d.Validation = fmt.Sprintf("spec.validations[%d]", *act.Index)
			}
			d.message = fmt.Sprintf("%s '%s' with binding '%s' denied request: %s", act.Entry.Kind, d.Policy, d.Binding, d.message)
		case trace.ByWebhook:
			d.Webhook = act.By
		}
		list = append(list, d)
	}
	if len(list) > 0 {
		// The first denial is the one that is answered.
		list[0].message = a.status.Message
	}
	return list, nil
}

// podSecurityWarning matches the warnings of upstream's plugin PodSecurity, which is in no trace.
var podSecurityWarning = regexp.MustCompile(`^(would violate PodSecurity|existing pods in namespace .* violate the new PodSecurity)`)

// warningCause returns the cause of a warning, as far as it is known.
func (a *answer) warningCause(text string) report.Cause {
	if i := slices.IndexFunc(a.warned, func(act trace.Act) bool { return act.WarnedBy(text) }); i >= 0 {
		return report.Cause{Plugin: a.warned[i].Step.Plugin, Policy: a.warned[i].By, Binding: a.warned[i].Binding}
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
