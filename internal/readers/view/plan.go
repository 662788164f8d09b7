package view

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
)

// Explained is a request and its plan.
type Explained struct {
	// For names the controller's reason for the request; empty for a request of the user.
	For string
	// Asked names the request, and Error is the reason why it would be rejected before admission.
	// Both are used only if there is no Plan.
	Asked, Error string
	Plan         *plan.Plan
	// All also draws plugins that change and reject nothing.
	All bool
	// Tried are the registrations that the plan assumes in addition to the stored ones.
	Tried []Tried
}

// Tried is a registration that is evaluated without being stored.
type Tried struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Problems are the errors and warnings about it, type errors included.
	Problems []string `json:"problems"`
	// Costs are the costs of its expressions.
	Costs []Cost `json:"costs"`
}

// String returns KIND NAME.
func (t *Tried) String() string { return t.Kind + " " + t.Name }

// Cost is the cost of an expression, in the units of CEL.
type Cost struct {
	Field string `json:"field"`
	// WorstCase is the maximum cost of the expression; nil if no schema bounds it.
	WorstCase *int64 `json:"worstCase"`
	Limit     int64  `json:"limit"`
}

func (c *Cost) text() string {
	if c.WorstCase == nil {
		return fmt.Sprintf("costs up to the limit of %d: no schema bounds it", c.Limit)
	}
	return fmt.Sprintf("costs at most %d of %d", *c.WorstCase, c.Limit)
}

// OfPlans draws the explanations of several requests. Unknowns that all plans share are listed once,
// at the end.
func OfPlans(list []Explained, links Links) *Document {
	d := &Document{Title: "What admission would do"}
	if len(list) == 1 {
		section := list[0].section(nil, links)
		d.Title, section.Titled = section.Heading, section.Below == ""
		d.Blocks = []Block{section}
		return d
	}
	var common, bad []string
	verdicts := map[plan.Verdict]int{}
	for i := range list {
		common = shared(common, list[i].notes(), i == 0)
		p := list[i].Plan
		if p == nil {
			bad = append(bad, list[i].Asked)
			continue
		}
		switch v := p.Verdict(); v {
		case plan.VerdictRejected:
			bad = append(bad, fmt.Sprintf("%s (%s)", Subject(&p.Request), p.RejectedBy()))
		case plan.VerdictLikely:
			bad = append(bad, fmt.Sprintf("%s (%s)", Subject(&p.Request), p.Likely))
		default:
			verdicts[v]++
		}
	}
	whole := Section{Blocks: drawnOnce(list, common, links)}
	if len(common) > 0 {
		whole.Blocks = append(whole.Blocks, List{"Unknown to these plans", common})
	}
	switch {
	case len(bad) > 0:
		whole.Verdict = Callout{Class: Bad, Head: fmt.Sprintf("%d of %d requests would be rejected", len(bad), len(list)), Text: strings.Join(bad, ", ")}
	case verdicts[plan.VerdictUnknown] > 0:
		whole.Verdict = Callout{Class: Warning, Head: fmt.Sprintf("Nothing that can be seen rejects the %d requests. Steps that are unknown can reject %s", len(list), of(verdicts[plan.VerdictUnknown], len(list)))}
	case verdicts[plan.VerdictWebhooks] > 0:
		whole.Verdict = Callout{Class: Good, Head: fmt.Sprintf("Nothing in the plans of %d requests rejects them. Webhooks can reject %s", len(list), of(verdicts[plan.VerdictWebhooks], len(list)))}
	default:
		whole.Verdict = Callout{Class: Good, Head: fmt.Sprintf("None of the %d requests is rejected in its plan", len(list))}
	}
	d.Blocks = []Block{whole}
	return d
}

// of says how many of all requests a sentence covers.
func of(n, all int) string {
	if n == all {
		return "them"
	}
	return fmt.Sprintf("%d of them", n)
}

// drawnOnce returns the sections of plans. Requests of one kind with the same plan share a section.
func drawnOnce(list []Explained, common []string, links Links) (sections []Block) {
	at, same := map[string]int{}, map[int][]string{}
	for i := range list {
		section := list[i].section(common, links)
		if p := list[i].Plan; p != nil {
			about := p.Request
			about.Namespace, about.Name = "", ""
			key := fmt.Sprintf("%#v %v %v", about, list[i].For != "", drawn(section))
			if first, ok := at[key]; ok {
				name := Subject(&p.Request)
				if p.Request.Name == "" && list[i].For != "" {
					name = p.Request.Kind + " for " + list[i].For
				}
				same[first] = append(same[first], name)
				continue
			}
			at[key] = len(sections)
		}
		sections = append(sections, section)
	}
	for first, names := range same {
		section := sections[first].(Section)
		section.Blocks = slices.Insert(section.Blocks, 0, Block(Note("The same plan: %s", joinSome(names))))
		sections[first] = section
	}
	return sections
}

// joinSome joins names, up to a limit.
func joinSome(names []string) string {
	const most = 10
	if len(names) > most {
		return fmt.Sprintf("%s, %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

// accessVolume matches the name of the volume that plugin ServiceAccount generates for each pod.
var accessVolume = regexp.MustCompile("kube-api-access-[a-z0-9]+")

// drawn returns all contents of a section below its heading, without generated names.
func drawn(s Section) string {
	data, err := json.Marshal([]any{s.Verdict, s.Blocks})
	if err != nil {
		panic(err) // Blocks are plain data.
	}
	return accessVolume.ReplaceAllString(string(data), "")
}

// notes lists the unknowns of the plan.
func (e *Explained) notes() []string {
	if e.Plan == nil {
		return nil
	}
	return e.Plan.Notes
}

// shared returns the texts that are in both a and b; all of b at first.
func shared(a, b []string, first bool) []string {
	if first {
		return slices.Clone(b)
	}
	return slices.DeleteFunc(a, func(s string) bool { return !slices.Contains(b, s) })
}

// effectClasses are the classes of the effects of steps.
var effectClasses = map[plan.Effect]Class{
	plan.Call: Noted, plan.Evaluate: Good, plan.Pend: Noted, plan.Reject: Bad, plan.Ignored: Warning, plan.Undecided: Warning,
}

// section draws an explanation. common are notes that another section shows.
func (e *Explained) section(common []string, links Links) Section {
	d := Section{Class: "plan", Heading: e.Asked}
	if e.For != "" {
		d.Below = fmt.Sprintf("For %s, its controller would create:", e.For)
	}
	p := e.Plan
	if p == nil {
		d.Verdict = Callout{Class: Bad, Head: "Rejected before admission", Text: e.Error}
		return d
	}
	d.Heading, d.Verdict = About(&p.Request), verdictOf(p)
	d.Blocks = append(d.Blocks, e.steps(links)...)
	if p.WorstCaseSeconds > 0 {
		d.Blocks = append(d.Blocks, Note("In the worst case webhooks and initializers take %s in total.", Seconds(p.WorstCaseSeconds)))
	}
	if notes := slices.DeleteFunc(slices.Clone(p.Notes), func(s string) bool { return slices.Contains(common, s) }); len(notes) > 0 {
		d.Blocks = append(d.Blocks, List{"Unknown to this plan", notes})
	}
	var problems []string
	var tried Facts
	for i := range e.Tried {
		t := &e.Tried[i]
		for _, problem := range t.Problems {
			problems = append(problems, t.String()+": "+problem)
		}
		if len(t.Problems) == 0 {
			tried = append(tried, Fact{Name: t.String(), Text: "is not registered; no problem was found"})
		}
		for k := range t.Costs {
			tried = append(tried, Fact{Name: t.String() + ", " + t.Costs[k].Field, Text: t.Costs[k].text()})
		}
	}
	if p.Revision != "" {
		tried = append(tried, Fact{Name: "registrations of revision", Text: p.Revision})
	}
	if len(problems) > 0 {
		d.Blocks = append(d.Blocks, List{"Problems of unregistered policies and webhooks", problems})
	}
	if len(tried) > 0 {
		d.Blocks = append(d.Blocks, tried)
	}
	return d
}

// verdictOf returns the verdict of a plan as a callout.
func verdictOf(p *plan.Plan) Callout {
	switch p.Verdict() {
	case plan.VerdictRejected:
		c := Callout{Class: Bad, Head: "The request would be rejected", Text: p.Rejection}
		if p.UpToMutation() {
			c.Head += ", unless a mutating webhook changes the object"
		}
		if len(p.Causes) > 1 {
			// The user is not authorized, and admission would reject the request as well.
			c.Text += "; and if that were not so: " + strings.Join(p.Causes[1:], "; ")
		}
		return c
	case plan.VerdictLikely:
		// Each cause names a possible change of the object.
		return Callout{Class: Bad, Head: "The request would be rejected", Text: cmp.Or(strings.Join(p.Causes, "; "), p.Likely)}
	case plan.VerdictUnknown:
		return Callout{Class: Warning, Head: "Nothing that can be seen rejects the request. Steps that are unknown can reject it"}
	case plan.VerdictWebhooks:
		who := "webhooks"
		if pends(p) {
			who = "webhooks and initializers"
		}
		if p.UpToMutation() {
			return Callout{Class: Good, Head: "Only " + who + ", and checks of the object after a webhook changed it, can still reject the request"}
		}
		return Callout{Class: Good, Head: "Only " + who + " can still reject the request"}
	}
	if pends(p) {
		return Callout{Class: Good, Head: "Only initializers can still reject the request"}
	}
	return Callout{Class: Good, Head: "Nothing in this plan rejects the request"}
}

func pends(p *plan.Plan) bool {
	for s := range p.Each() {
		if s.Effect == plan.Pend {
			return true
		}
	}
	return false
}

// steps draws the steps of the plan, in order.
func (e *Explained) steps(links Links) (blocks []Block) {
	if len(e.Plan.Steps) == 0 {
		return []Block{Note("Nothing applies.")}
	}
	var quiet []string
	table := Table{Columns: []Column{{Title: "#", Right: true}, {Title: "Phase"}, {Title: "Effect"}, {Title: "By", Wide: true}, {Title: "As"}, {Title: "If it fails"}, {Title: "Timeout", Right: true}, {Title: "Remarks", Wide: true, Bare: true}}}
	acts := 0
	for s := range e.Plan.Each() {
		remarks := remarks(s)
		if !e.All && s.Effect == plan.Run && len(remarks) == 0 {
			if !slices.Contains(quiet, s.Plugin) {
				quiet = append(quiet, s.Plugin)
			}
			continue
		}
		number, by, as, timeout := "", Code(s.Plugin), "", ""
		switch s.Effect {
		case plan.Call, plan.Evaluate, plan.Pend, plan.Run:
			acts++
			number = fmt.Sprint(acts)
		}
		if s.Entry != nil {
			by = Code(s.Entry.String())
			by.Href = links.entry(s.Entry.Kind, s.Entry.Configuration)
			if slices.ContainsFunc(e.Tried, func(t Tried) bool { return t.Kind == s.Entry.Kind && t.Name == s.Entry.Configuration }) {
				by.Tag = "what if"
			}
		}
		if s.As != nil {
			as = s.As.APIVersion + " " + s.As.Kind
		}
		if s.TimeoutSeconds > 0 {
			timeout = Seconds(s.TimeoutSeconds)
		}
		effect := Text(s.Effect)
		if s.Effect == plan.Pend {
			effect = Text("initialize")
		}
		effect.Badge, effect.Class = true, effectClasses[s.Effect]
		row := table.Add(number, s.Pass, effect, by, as, s.FailurePolicy, timeout, Code(remarks...))
		row.ID, row.Muted, row.Open, row.Inside = by.Lines[0], s.Effect == plan.Skip, s.Effect == plan.Reject, insideOf(s)
	}
	if len(table.Rows) > 0 {
		blocks = append(blocks, table)
	}
	switch len(quiet) {
	case 0:
	case 1:
		blocks = append(blocks, Note("Plugin %s allows it.", quiet[0]))
	default:
		blocks = append(blocks, Note("%d plugins allow it (--all shows each).", len(quiet)))
	}
	return blocks
}

// insideOf returns the details of a step: the results of its expressions, and its changes.
func insideOf(s *plan.Step) []Block {
	var list []Block
	for k := range s.Evaluations {
		for n := range s.Evaluations[k].Validations {
			v := &s.Evaluations[k].Validations[n]
			check := Check{
				Verdict: Mark{v.Verdict, checkClasses[v.Verdict]}, Cost: fmt.Sprintf("cost %d of %d", v.Cost, v.CostLimit),
				Expression: v.Expression, Message: v.Message, Because: v.Because,
			}
			for _, part := range v.Values {
				check.Values = append(check.Values, Fact{Name: part.Expression, Text: part.Value})
			}
			list = append(list, check)
		}
	}
	for k := range s.Evaluations {
		annotations := s.Evaluations[k].AuditAnnotations
		for _, key := range slices.Sorted(maps.Keys(annotations)) {
			list = append(list, Note("audit annotation %s: %s", key, annotations[key]))
		}
	}
	patch := operations(s.Patch)
	for k := range s.Evaluations {
		for n := range s.Evaluations[k].Mutations {
			patch = append(patch, operations(s.Evaluations[k].Mutations[n].Patch)...)
		}
	}
	if len(patch) > 0 {
		list = append(list, editsOf(patch))
	}
	return list
}

func operations(patch json.RawMessage) []trace.PatchOperation {
	var list []trace.PatchOperation
	if len(patch) == 0 || json.Unmarshal(patch, &list) != nil {
		return nil
	}
	return list
}

// About describes a request, such as "CREATE Deployment shop/web (apps/v1 deployments), by alice".
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

// Subject names the object of a request, such as "Deployment shop/web".
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

// remarks explains the effect of a step.
func remarks(s *plan.Step) []string {
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
