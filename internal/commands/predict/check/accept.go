package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
)

// skips reports whether the object's kind is in Options.Skip.
func (r *run) skips(t *task) bool {
	gvk := t.sent.GroupVersionKind()
	return slices.ContainsFunc(r.Skip, func(one string) bool {
		group, kind, found := strings.Cut(one, "/")
		if !found {
			return strings.EqualFold(one, gvk.Kind)
		}
		return strings.EqualFold(kind, gvk.Kind) && (group == gvk.Group || group == "core" && gvk.Group == "")
	})
}

// accept moves accepted findings of the report to Suppressed.
func (r *run) accept() {
	comments := map[string][]*manifests.Acceptance{}
	for i := range r.Set.Acceptances {
		a := &r.Set.Acceptances[i]
		comments[a.File] = append(comments[a.File], a)
	}
	used := map[*manifests.Acceptance]bool{}
	kept := r.report.Findings[:0]
	for _, f := range r.report.Findings {
		by, reason := "", ""
		for _, a := range comments[f.File] {
			if a.Reason != "" && report.IsOf(f.Rule, a.Rule) && a.Covers(f.Line) {
				used[a] = true
				by, reason = fmt.Sprintf("%s:%d", a.File, a.Line), a.Reason
			}
		}
		for i := range r.Accepted {
			// A finding names its object as KIND NAME, an acceptance as KIND/NAME.
			if a := &r.Accepted[i]; by == "" && a.Accepts(f.Rule, f.File, strings.Replace(f.Object, " ", "/", 1)) {
				by, reason = r.AcceptedBy, a.Reason
			}
		}
		if by == "" {
			kept = append(kept, f)
			continue
		}
		r.report.Suppressed = append(r.report.Suppressed, report.Suppressed{Finding: f, Reason: reason, By: by})
	}
	r.report.Findings = kept
	for i := range r.Set.Acceptances {
		a := &r.Set.Acceptances[i]
		message := ""
		switch {
		case FindRule(a.Rule) == nil || used[a]:
			// The rule may belong to another command.
			continue
		case a.Reason == "":
			message = fmt.Sprintf("the acceptance of %s has no reason: write '# gatehouse: accept %s: REASON'", a.Rule, a.Rule)
		default:
			message = fmt.Sprintf("nothing of the rule %s is found here", a.Rule)
		}
		r.report.Findings = append(r.report.Findings, report.Finding{Level: report.Warning, Rule: ruleAccept, File: a.File, Line: a.Line, Column: 1, Message: message})
	}
}
