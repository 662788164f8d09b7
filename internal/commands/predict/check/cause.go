package check

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/stage"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
)

// answer is the server's response with the causes found in the trace of the request.
type answer struct {
	*stage.Answer
	// judged is whether admission of the request began: the server may refuse the user before.
	judged bool
	// denials are the reasons why admission denied the object.
	denials []denial
	// warned are acts of policies that may have caused the warnings.
	warned []trace.Act
	// changes are the changes made by admission; only for Options.Diff.
	changes []Change
}

// denial is one reason why admission denied an object. Several policies and webhooks may deny the same object.
type denial struct {
	report.Cause
	message string
}

// read reads the trace of a response and then drops it, because the traces of all objects would use much memory.
func (r *run) read(a *stage.Answer) *answer {
	if a == nil {
		return nil
	}
	t := a.Trace
	a.Trace = nil
	out := &answer{Answer: a, judged: t != nil && t.Judged()}
	if t == nil || a.OK() && len(a.Warnings) == 0 && !r.Diff {
		return out
	}
	record := t.Record(trace.RecordOptions{})
	for act := range record.Acts() {
		if act.Deed == trace.Notes || act.Deed == trace.WouldReject {
			out.warned = append(out.warned, act)
		}
	}
	if a.OK() {
		if r.Diff {
			out.changes = changes(&record)
		}
		return out
	}
	for act := range record.Rejections() {
		out.denials = append(out.denials, denialOf(act))
	}
	if len(out.denials) > 0 {
		// The response contains the message of the first denial.
		out.denials[0].message = a.Status.Message
	}
	return out
}

// denialOf converts a rejection by a step of admission.
func denialOf(act trace.Act) denial {
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
	return d
}

// podSecurityWarning matches the warnings of upstream's plugin PodSecurity, which are not in traces.
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
func deniedRule(a *answer, d *denial) string {
	if base := a.rule(); base == ruleNamespace {
		return base
	}
	return d.Description(ruleDenied)
}
