package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	apiadmission "k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/stage"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
)

// Unseen is a part of the cluster that was not read, or that this server rejected.
type Unseen struct {
	stage.Unseen
	// Objects is the number of objects whose verdict may differ because of it. Allowed reports whether
	// Options.AllowUnseen accepts that.
	Objects int  `json:"objects"`
	Allowed bool `json:"allowed,omitempty"`
}

// EverythingUnseen in Options.AllowUnseen means all resources.
const EverythingUnseen = "*"

// finding returns the message of a finding: the consequence for the verdicts, and the remedy.
func (u *Unseen) finding() string {
	return fmt.Sprintf("%s: the verdict on %s may be another one; let the reader list them, or accept it with --allow-unseen=%s", u.Text(), report.Count(u.Objects, "object"), u.Resource)
}

// about describes the request for an object.
func (r *run) about(t *task) *stage.About {
	a := &stage.About{Kind: t.kind, Namespace: t.namespace, Phase: t.phase, Authorized: r.As != ""}
	switch {
	case t.removed:
		a.Operation = apiadmission.Delete
	case t.unchanged:
	case t.stored:
		a.Operation = apiadmission.Update
	default:
		a.Operation = apiadmission.Create
	}
	return a
}

// countUnseen counts, for each unseen part, the objects that it concerns, after all objects are checked. It reports the
// parts that concern any object.
func (r *run) countUnseen() {
	for _, u := range r.report.Unseen {
		for _, t := range slices.Concat(r.tasks, r.removed) {
			if t.result.Verdict != NotJudged && u.Concerns(r.about(t)) {
				u.Objects++
			}
		}
		u.Allowed = slices.ContainsFunc(r.AllowUnseen, func(allowed string) bool {
			return allowed == EverythingUnseen || strings.EqualFold(allowed, u.Resource) || strings.EqualFold(allowed, strings.Split(u.Resource, ".")[0])
		})
		if u.Objects > 0 && !u.Allowed {
			r.report.Findings = append(r.report.Findings, report.Finding{Level: report.Error, Rule: ruleUnseen, Message: u.finding()})
		}
	}
	slices.SortFunc(r.report.Unseen, func(a, b *Unseen) int { return cmp.Compare(a.Resource, b.Resource) })
}
