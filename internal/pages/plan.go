package pages

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/report"
)

// Explained is a request and what admission would do with it.
type Explained struct {
	// Heading says for what the request would be made, if a controller would make it.
	Heading string
	// Asked names the request, and Error says why it would be rejected before admission. Both are of
	// use when there is no Plan.
	Asked, Error string
	Plan         *plan.Plan
	// Tried is what the plan takes to be registered besides what is.
	Tried []Tried
}

// Tried is a registration that was tried without registering it.
type Tried struct {
	// Name names it, as KIND NAME.
	Name string
	// Problems are what is wrong with it, type errors among them.
	Problems []string
	// Costs are what its expressions cost.
	Costs []Cost
}

// Cost is what an expression costs, in the units of CEL.
type Cost struct {
	Field string
	// WorstCase is what the expression costs at most; empty if no schema bounds it.
	WorstCase string
	Limit     int64
}

// NewCost returns what an expression costs; worst is nil if no schema bounds it.
func NewCost(field string, worst *int64, limit int64) Cost {
	c := Cost{Field: field, Limit: limit}
	if worst != nil {
		c.WorstCase = fmt.Sprint(*worst)
	}
	return c
}

// explained is an Explained, as it is drawn.
type explained struct {
	Explained
	Title, Verdict, Class string
	Steps                 []planStep
	Worst                 string
	Notes                 []string
}

type planStep struct {
	Number                       string
	Pass, Effect, Class          string
	By, Href, As, Policy, Within string
	Remarks                      []string
	Checks                       []check
	Changes                      *inside
	Skip, Tried, Open            bool
}

// OfPlans returns the explanations of some requests.
func OfPlans(list []Explained, links Links) View {
	drawn := make([]explained, len(list))
	bad := 0
	for i := range list {
		drawn[i] = newExplained(list[i], links)
		if drawn[i].Class == "bad" {
			bad++
		}
	}
	title := "What admission would do"
	if len(drawn) == 1 {
		title = drawn[0].Title
	}
	data := struct {
		Several bool
		Bad     int
		All     int
		List    []explained
	}{len(drawn) > 1, bad, len(drawn), drawn}
	return View{Title: title, template: "plan", data: data, markdown: func(m *markdown) {
		if len(drawn) > 1 {
			m.line("%d of %s would be rejected.", bad, report.Count(len(drawn), "request"))
		}
		for i := range drawn {
			drawn[i].markdown(m, len(drawn) > 1)
		}
	}}
}

// effectClasses are the classes of what steps do.
var effectClasses = map[plan.Effect]string{
	plan.Call: "note", plan.Evaluate: "ok", plan.Pend: "note", plan.Run: "", plan.Reject: "bad", plan.Ignored: "warn", plan.Skip: "", plan.Undecided: "warn",
}

func newExplained(e Explained, links Links) explained {
	d := explained{Explained: e, Title: e.Asked, Class: "bad", Verdict: "Rejected before admission"}
	p := e.Plan
	if p == nil {
		return d
	}
	d.Title, d.Notes = About(&p.Request), p.Notes
	switch p.Verdict() {
	case plan.VerdictRejected:
		d.Verdict = "The request would be rejected"
		if p.UpToMutation() {
			d.Verdict += ", unless a mutating webhook changes the object"
		}
		d.Error = p.Rejection
	case plan.VerdictUnknown:
		d.Class, d.Verdict = "warn", "Nothing that can be seen rejects the request. Steps that are unknown can reject it"
	case plan.VerdictWebhooks:
		d.Class, d.Verdict = "ok", "Nothing but webhooks can reject the request"
	default:
		d.Class, d.Verdict = "ok", "Nothing in this plan rejects the request"
	}
	if p.WorstCaseSeconds > 0 {
		d.Worst = Seconds(p.WorstCaseSeconds)
	}
	acts := 0
	for s := range p.Each() {
		one := planStep{
			Pass: s.Pass, Effect: string(s.Effect), Class: effectClasses[s.Effect], By: s.Plugin, Policy: s.FailurePolicy, Remarks: Remarks(s),
			Skip: s.Effect == plan.Skip, Open: s.Effect == plan.Reject,
		}
		switch s.Effect {
		case plan.Call, plan.Evaluate, plan.Pend, plan.Run:
			acts++
			one.Number = fmt.Sprint(acts)
		}
		if s.Entry != nil {
			one.By, one.Href = s.Entry.String(), links.entry(s.Entry.Kind, s.Entry.Configuration)
			one.Tried = slices.ContainsFunc(e.Tried, func(t Tried) bool { return t.Name == s.Entry.Kind+" "+s.Entry.Configuration })
		}
		if s.As != nil {
			one.As = s.As.APIVersion + " " + s.As.Kind
		}
		if s.TimeoutSeconds > 0 {
			one.Within = Seconds(s.TimeoutSeconds)
		}
		for k := range s.Evaluations {
			for n := range s.Evaluations[k].Validations {
				v := &s.Evaluations[k].Validations[n]
				check := check{
					Verdict: v.Verdict, Class: map[string]string{"holds": "ok", "violated": "bad", "failed": "bad"}[v.Verdict], Expression: v.Expression, Message: v.Message,
					Took: fmt.Sprintf("cost %d of %d", v.Cost, v.CostLimit), Because: v.Because,
				}
				for _, part := range v.Values {
					check.Values = append(check.Values, fact{part.Expression, part.Value})
				}
				one.Checks = append(one.Checks, check)
			}
		}
		in := &inside{}
		in.patch(operations(s.Patch))
		for k := range s.Evaluations {
			for n := range s.Evaluations[k].Mutations {
				in.patch(operations(s.Evaluations[k].Mutations[n].Patch))
			}
		}
		one.Changes = in.some()
		d.Steps = append(d.Steps, one)
	}
	return d
}

func operations(patch json.RawMessage) []trace.PatchOperation {
	var list []trace.PatchOperation
	if len(patch) == 0 || json.Unmarshal(patch, &list) != nil {
		return nil
	}
	return list
}

func (d *explained) markdown(m *markdown, several bool) {
	if d.Heading != "" {
		m.line("%s", escaped(d.Heading))
	}
	if several {
		m.line("## %s", escaped(d.Title))
	}
	m.line("**%s.** %s", escaped(d.Verdict), code(d.Error))
	for _, t := range d.Tried {
		for _, problem := range t.Problems {
			m.item("%s: %s", code(t.Name), code(problem))
		}
	}
	if len(d.Steps) > 0 {
		m.head("#", "pass", "effect", "by", "if it fails", "remarks")
	}
	for i := range d.Steps {
		s := &d.Steps[i]
		remarks := make([]string, len(s.Remarks))
		for k, text := range s.Remarks {
			remarks[k] = code(text)
		}
		m.row(s.Number, s.Pass, s.Effect, code(s.By), s.Policy, strings.Join(remarks, "<br>"))
	}
	m.end()
	for _, note := range d.Notes {
		m.item("Unknown: %s", code(note))
	}
	m.end()
}

// About says what a request is about: CREATE Deployment shop/web (apps/v1 deployments), by alice.
func About(r *plan.About) string {
	resource := r.Resource
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	s := fmt.Sprintf("%s %s (%s %s)", r.Operation, Subject(r), r.APIVersion, resource)
	if r.User != "" {
		s += ", by " + r.User
	}
	if r.DryRun {
		s += ", as a dry run"
	}
	return s
}

// Subject names the object of a request: Deployment shop/web.
func Subject(r *plan.About) string {
	name := r.Name
	if name == "" {
		name = "(no name yet)"
	}
	if r.Namespace != "" && r.Resource != "namespaces" {
		name = path.Join(r.Namespace, name)
	}
	return r.Kind + " " + name
}

// Remarks say why a step is what it is.
func Remarks(s *plan.Step) []string {
	var list []string
	if s.Reason != nil {
		list = append(list, s.Reason.Message)
	} else if summary := s.Summary(); summary != "" {
		list = append(list, summary)
	}
	if len(s.Patch) > 0 {
		list = append(list, "changes "+strings.Join(changedFields(s.Patch), ", "))
	}
	list = append(list, s.Details()...)
	rule := ""
	if s.Rule != nil {
		rule = fmt.Sprintf("rule %d", *s.Rule+1)
	}
	if s.Location != nil {
		rule = strings.TrimSpace(rule + " at " + s.Location.String())
	}
	if rule != "" {
		list = append(list, rule)
	}
	if s.As != nil && s.As.Equivalent {
		list = append(list, "converted: the rule is about an equivalent resource")
	}
	if s.MayGoAhead {
		list = append(list, "may be called ahead of its turn")
	}
	if s.MayReinvoke {
		list = append(list, "may be called again")
	}
	return append(list, s.Notes...)
}

// changedFields lists the paths of a patch.
func changedFields(patch json.RawMessage) []string {
	list := operations(patch)
	if list == nil {
		return []string{"the object"}
	}
	paths := make([]string, len(list))
	for i := range list {
		paths[i] = list[i].Path
	}
	return paths
}

// Seconds writes a number of seconds as a duration.
func Seconds(n float64) string { return (time.Duration(n * float64(time.Second))).String() }
