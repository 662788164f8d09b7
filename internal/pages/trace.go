package pages

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/report"
)

// Links say where a View leads to. A nil function leads nowhere, as in a page of its own.
type Links struct {
	// Trace is the address of a trace, Entry that of a registration.
	Trace func(id string) string
	Entry func(kind, configuration string) string
}

func (l Links) trace(id string) string {
	if l.Trace == nil {
		return ""
	}
	return l.Trace(id)
}

func (l Links) entry(kind, configuration string) string {
	if l.Entry == nil {
		return ""
	}
	return l.Entry(kind, configuration)
}

// Bounds of what is drawn of a trace.
const (
	maxSpans   = 2000
	maxChanges = 200
	maxValue   = 2000
)

// OfTrace returns the waterfall of a trace.
func OfTrace(r *trace.Record, links Links) View {
	w := newWaterfall(r, links)
	return View{Title: w.Title, template: "trace", data: w, markdown: func(m *markdown) { w.markdown(m) }}
}

// waterfall is a trace, as it is drawn.
type waterfall struct {
	*trace.Record
	Title, Subject  string
	State           string // the class of the outcome
	Total, Own, At  string
	Rejected        *cause
	Ticks           []string
	Spans           []span
	More            int
	links           Links
	start           time.Time
	scale           float64
	namesTheObjects bool
}

// cause is what rejected a request.
type cause struct{ By, Href, Text string }

// span is a row of a waterfall.
type span struct {
	// Pass is set for the heading of a pass, of the class Class.
	Pass  string
	Class string
	// Name is what took the time, of which Child is a part of the row above.
	Name, Href string
	Child      bool
	Bar        bar
	Took       string
	// State is what became of it, and StateClass the class of that.
	State, StateClass string
	Open              bool
	Inside            *inside
}

// inside is what there is to say about a row.
type inside struct {
	Facts   []fact
	Error   string
	Changes []edit
	More    int
	Checks  []check
	Notes   []string
}

type fact struct{ Name, Text string }

// edit is a field that was changed: what it was, and what it is.
type edit struct {
	Field    string
	Was, Is  string
	Had, Has bool
}

// check is an expression and what it said.
type check struct {
	Verdict, Class, Expression, Message, Took string
	// Because is the part that makes it false, and Values are those of its parts.
	Because string
	Values  []fact
}

// outcomeClass is the class of an outcome.
func outcomeClass(o trace.Outcome) string {
	switch o {
	case trace.OutcomeAllowed:
		return "ok"
	case trace.OutcomeFailedOpen:
		return "warn"
	}
	return "bad"
}

func newWaterfall(r *trace.Record, links Links) *waterfall {
	subject := r.Request.Operation + " " + r.Request.Object()
	w := &waterfall{
		Record: r, links: links, Title: "Trace of " + subject, Subject: subject, State: outcomeClass(r.Outcome),
		Total: Brief(r.TotalMicros), Own: Brief(r.OwnMicros), At: r.Start.UTC().Format("2006-01-02 15:04:05.000 MST"), start: r.Start.Time,
	}
	// A step may end after the time that was measured.
	whole := max(r.TotalMicros, 1)
	w.namesTheObjects = r.Several()
	for s := range r.Each() {
		whole = max(whole, s.Start.Sub(w.start).Microseconds()+s.Micros)
	}
	for act := range r.Rejections() {
		w.Rejected = &cause{By: act.By, Text: act.Message}
		if act.Entry != nil {
			w.Rejected.Href = links.entry(act.Entry.Kind, act.Entry.Configuration)
		}
		break
	}
	w.scale = barWidth / float64(whole)
	for i := range 5 {
		w.Ticks = append(w.Ticks, Brief(whole*int64(i)/4))
	}
	var quiet []*trace.StepRecord
	pass := ""
	for s := range r.Each() {
		heading := s.Pass + " pass"
		if s.Round > 0 {
			heading += ", run again"
		}
		if heading != pass {
			w.quiet(quiet)
			quiet, pass = nil, heading
			w.Spans = append(w.Spans, span{Pass: heading, Class: s.Pass})
		}
		if uneventful(s) {
			quiet = append(quiet, s)
			continue
		}
		w.quiet(quiet)
		quiet = nil
		w.step(s)
	}
	w.quiet(quiet)
	if len(w.Spans) > maxSpans {
		w.Spans, w.More = w.Spans[:maxSpans], len(w.Spans)-maxSpans
	}
	return w
}

// uneventful reports whether a step only let the request go on.
func uneventful(s *trace.StepRecord) bool {
	return s.Allowed && len(s.Patch)+len(s.Pending)+len(s.Initializing)+len(s.Judgements)+len(s.Calls)+len(s.Discarded)+len(s.Conditions)+len(s.Skips)+len(s.Exclusions) == 0
}

// bar is where something stands on the line.
func (w *waterfall) bar(start time.Time, micros int64, class string) bar {
	left := min(max(float64(start.Sub(w.start).Microseconds()), 0)*w.scale, barWidth-2)
	// What takes no time is seen, too.
	return bar{Left: left, Width: min(max(float64(micros)*w.scale, 2), barWidth-left), Class: class}
}

// quiet draws steps in one row that only let the request go on.
func (w *waterfall) quiet(steps []*trace.StepRecord) {
	if len(steps) == 0 {
		return
	}
	if len(steps) == 1 {
		s := steps[0]
		w.Spans = append(w.Spans, span{Name: w.named(s), Bar: w.bar(s.Start.Time, s.Micros, "plugin"), Took: Brief(s.Micros)})
		return
	}
	first, last := steps[0], steps[len(steps)-1]
	took := last.Start.Sub(first.Start.Time).Microseconds() + last.Micros
	one := span{Name: fmt.Sprintf("%d plugins let it go on", len(steps)), Bar: w.bar(first.Start.Time, took, "plugin"), Took: Brief(took), Inside: &inside{}}
	for _, s := range steps {
		one.Inside.Facts = append(one.Inside.Facts, fact{w.named(s), Brief(s.Micros)})
	}
	w.Spans = append(w.Spans, one)
}

// named is the name of a step, with its object if the request is about several.
func (w *waterfall) named(s *trace.StepRecord) string {
	if w.namesTheObjects && s.Name != "" {
		return s.Plugin + ", " + s.Name
	}
	return s.Plugin
}

// step draws a step, and what took part in it.
func (w *waterfall) step(s *trace.StepRecord) {
	one := span{Name: w.named(s), Bar: w.bar(s.Start.Time, s.Micros, "plugin"), Took: Brief(s.Micros)}
	in := &inside{}
	in.patch(s.Patch)
	in.patch(s.Written)
	if len(s.Patch)+len(s.Written) > 0 {
		one.State, one.StateClass = "changed", "note"
	}
	for _, name := range s.Pending {
		in.Notes = append(in.Notes, "The object waits for the initializer "+name+".")
	}
	if len(s.Initializing) > 0 {
		in.Notes = append(in.Notes, "The turn of the initializer "+strings.Join(s.Initializing, ", ")+".")
	}
	if len(s.Pending) > 0 {
		one.State, one.StateClass = "waits", "note"
	}
	if !s.Allowed {
		one.State, one.StateClass = "rejected", "bad"
	}
	for act := range s.Acts() {
		if act.Deed == trace.Rejects && act.Kind == trace.ByPlugin {
			one.Bar.Class, in.Error, one.Open = "bad", act.Message, true
		}
	}
	for i := range s.Skips {
		k := &s.Skips[i]
		in.Notes = append(in.Notes, "Not called: "+k.Entry.String()+", because "+k.Reason+".")
	}
	for i := range s.Conditions {
		if c := &s.Conditions[i]; c.Excluded {
			text := "Not called: " + c.Entry.String() + ", by its match conditions"
			if c.Error != "" {
				text += ", which failed: " + c.Error
			}
			in.Notes = append(in.Notes, text+".")
		}
	}
	for i := range s.Exclusions {
		x := &s.Exclusions[i]
		in.Notes = append(in.Notes, fmt.Sprintf("The exclusion rule %s has the effect %s on %s.", x.Rule, x.Effect, strings.Join(x.Names(), ", ")))
	}
	one.Inside = in.some()
	w.Spans = append(w.Spans, one)
	for part := range s.Parts() {
		if part.Judgement != nil {
			w.judgement(s, part.Judgement)
			continue
		}
		w.call(s, part.Call, part.Unused)
	}
}

// verdictClass is the class of the verdict of a call.
func verdictClass(c *trace.CallRecord) string {
	switch c.Deed() {
	case trace.Rejects:
		return "bad"
	case trace.WouldReject, trace.FailsOpen:
		return "warn"
	}
	return "ok"
}

// call draws the call of a webhook.
func (w *waterfall) call(s *trace.StepRecord, c *trace.CallRecord, note string) {
	one := span{
		Child: true, Name: c.Webhook.String(), Href: w.links.entry(c.Webhook.Kind, c.Webhook.Configuration), Bar: w.bar(c.Start.Time, c.Micros, s.Pass),
		Took: Brief(c.Micros), State: c.Verdict, StateClass: verdictClass(c), Inside: &inside{Error: c.Error},
	}
	in := one.Inside
	switch {
	case note != "":
		one.State, one.StateClass = "not used", "note"
		in.Notes = append(in.Notes, note)
	case c.Deed() == trace.FailsOpen:
		one.State, one.Bar.Class = "ignored", "warn"
		in.Notes = append(in.Notes, "The failure was ignored: failurePolicy is Ignore.")
	case c.Deed() == trace.WouldReject:
		one.State, one.Bar.Class = "would reject", "warn"
	case c.Deed() == trace.Rejects:
		// The answer to the client may say more than the error of the call.
		one.Bar.Class, one.Open = "bad", !s.Allowed
	case len(c.WouldPatch) > 0:
		one.State, one.StateClass = "would change", "warn"
	case c.Mutated:
		one.State, one.StateClass = "changed", "note"
	}
	if c.Enforcement != nil {
		in.Notes = append(in.Notes, spared(c.Enforcement, c.WouldPatch))
	}
	in.Facts = append(in.Facts, fact{"kind", c.Webhook.Kind}, fact{"rule", fmt.Sprint(c.Rule + 1)})
	for _, f := range []fact{{"failurePolicy", c.FailurePolicy}, {"review", c.ReviewVersion}, {"failed at", c.Class}} {
		if f.Text != "" {
			in.Facts = append(in.Facts, f)
		}
	}
	if c.Code != 0 {
		in.Facts = append(in.Facts, fact{"code", fmt.Sprint(c.Code)})
	}
	if c.Equivalent {
		in.Facts = append(in.Facts, fact{"sent as", c.Kind.String()})
	}
	if !c.Sent {
		in.Notes = append(in.Notes, "The review was not delivered.")
	}
	switch c.Turn {
	case trace.Ahead.String():
		in.Notes = append(in.Notes, "The webhook was called ahead of its turn.")
	case trace.Again.String():
		in.Notes = append(in.Notes, "The webhook was called twice.")
	}
	in.patch(c.Patch)
	in.patch(c.WouldPatch)
	for _, text := range c.Warnings {
		in.Notes = append(in.Notes, "Warning: "+text)
	}
	for _, key := range slices.Sorted(maps.Keys(c.AuditAnnotations)) {
		in.Notes = append(in.Notes, "Audit annotation "+key+": "+c.AuditAnnotations[key])
	}
	w.Spans = append(w.Spans, one)
}

// judgement draws what a policy did.
func (w *waterfall) judgement(s *trace.StepRecord, j *trace.JudgementRecord) {
	one := span{
		Child: true, Name: j.Policy.Configuration, Href: w.links.entry(j.Policy.Kind, j.Policy.Configuration), State: "holds", StateClass: "ok",
		Inside: &inside{Facts: []fact{{"kind", j.Policy.Kind}, {"failurePolicy", j.FailurePolicy}, {"rule", fmt.Sprint(j.Rule + 1)}}},
	}
	in := one.Inside
	if j.Equivalent {
		in.Facts = append(in.Facts, fact{"sees", j.Kind.String()})
	}
	var micros, cost int64
	start := s.Start.Time
	for i := range j.Evaluations {
		e := &j.Evaluations[i]
		if i == 0 {
			start = e.Start.Time
		}
		micros, cost = micros+e.Micros, cost+e.Cost
		with := ""
		if e.Param != nil {
			with = " with the param " + e.Param.String()
		}
		if names := strings.Join(e.Bindings, ", "); names != "" {
			if e.MoreBindings > 0 {
				names += fmt.Sprintf(" and %d more", e.MoreBindings)
			}
			in.Notes = append(in.Notes, "Evaluated"+with+" for the binding "+names+".")
		}
		if e.FalseCondition != "" {
			one.State, one.StateClass = "excluded", ""
			in.Notes = append(in.Notes, "The match condition "+e.FalseCondition+" is false.")
		}
		if e.Error != "" {
			in.Error = e.Error
		}
		for k := range e.Validations {
			v := &e.Validations[k]
			one := check{
				Verdict: v.Verdict, Class: map[string]string{"holds": "ok", "violated": "bad"}[v.Verdict], Expression: v.Expression, Message: v.Message,
				Took: fmt.Sprintf("%s, cost %d", Brief(v.Nanos/1000), v.Cost), Because: v.Because,
			}
			for _, part := range v.Values {
				one.Values = append(one.Values, fact{part.Expression, part.Value})
			}
			in.Checks = append(in.Checks, one)
		}
		for k := range e.Mutations {
			m := &e.Mutations[k]
			verdict, class := "changed nothing", ""
			switch {
			case m.Error != "":
				verdict, class = "failed", "bad"
			case len(m.WouldPatch) > 0:
				verdict, class = "would change", "warn"
				one.State, one.StateClass = "would change", "warn"
				in.Notes = append(in.Notes, spared(e.Enforcement, m.WouldPatch))
			case m.Mutated:
				verdict, class = "changed", "note"
				one.State, one.StateClass = "changed", "note"
			}
			in.Checks = append(in.Checks, check{
				Verdict: verdict, Class: class, Expression: fmt.Sprintf("mutation %d, %s", m.Index+1, m.Type), Message: m.Error,
				Took: fmt.Sprintf("%s, cost %d", Brief(m.Micros), m.Cost),
			})
			in.patch(m.Patch)
			in.patch(m.WouldPatch)
		}
		for k := range e.AuditAnnotations {
			if a := &e.AuditAnnotations[k]; a.Value != "" {
				in.Notes = append(in.Notes, "Audit annotation "+a.Key+": "+a.Value)
			}
		}
	}
	class, denied := s.Pass, ""
	for i := range j.Consequences {
		c := &j.Consequences[i]
		text := c.Message
		if c.Binding != "" {
			text = "Binding " + c.Binding + ": " + text
		}
		if len(c.Actions) > 0 {
			text += " (" + strings.Join(c.Actions, ", ") + ")"
		}
		if c.Denied && denied == "" {
			denied = cmp.Or(c.Message, c.Code)
		}
		if c.Spared {
			text += ". " + spared(c.Enforcement, nil)
		}
		if c.Ignored {
			text += ", ignored: failurePolicy is Ignore"
			one.State, one.StateClass, class = "ignored", "warn", "warn"
		} else if !c.Denied {
			one.State, one.StateClass = "violated", "warn"
		}
		in.Notes = append(in.Notes, text)
	}
	if denied != "" {
		one.State, one.StateClass, one.Open, class = "denied", "bad", true, "bad"
		// The expression says it, too, where there is one.
		if !slices.ContainsFunc(in.Checks, func(c check) bool { return c.Message == denied }) {
			in.Error = denied
		}
	}
	if j.MoreConsequences > 0 {
		in.Notes = append(in.Notes, fmt.Sprintf("And %d more.", j.MoreConsequences))
	}
	in.Facts = append(in.Facts, fact{"cost", fmt.Sprint(cost)})
	one.Bar, one.Took = w.bar(start, micros, class), Brief(micros)
	w.Spans = append(w.Spans, one)
}

// spared says of something soft that the request went on without it. would is the patch that it
// would have made.
func spared(e *trace.Enforcement, would []trace.PatchOperation) string {
	if len(would) > 0 {
		return "The fields would have been changed, and were not: " + e.String() + "."
	}
	return "The request goes on: " + e.String() + "."
}

// patch adds the fields that a patch changed.
func (in *inside) patch(patch []trace.PatchOperation) {
	for i := range patch {
		p := &patch[i]
		if p.Op == "test" {
			continue
		}
		if len(in.Changes) == maxChanges {
			in.More++
			continue
		}
		e := edit{Field: cmp.Or(p.Field, p.Path), Was: value(p.Was), Is: value(p.Value), Had: len(p.Was) > 0, Has: len(p.Value) > 0 || p.Op != "remove"}
		switch {
		case p.From != "":
			e.Is, e.Has = p.Op+" from "+p.From, true
		case p.WasBytes > 0:
			e.Was, e.Had = fmt.Sprintf("(%d bytes or more)", p.WasBytes), true
		case p.Op == "remove" && !e.Had:
			e.Was, e.Had = "(not shown)", true
		case e.Has && len(p.Value) == 0:
			e.Is = "(not shown)"
		}
		in.Changes = append(in.Changes, e)
	}
}

// value is a value of JSON, for people.
func value(data json.RawMessage) string {
	var indented strings.Builder
	var v any
	if len(data) > 60 && json.Unmarshal(data, &v) == nil {
		encoder := json.NewEncoder(&indented)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		if encoder.Encode(v) == nil {
			return trace.Cut(strings.TrimSuffix(indented.String(), "\n"), maxValue)
		}
	}
	return trace.Cut(string(data), maxValue)
}

// some is nil if there is nothing to say.
func (in *inside) some() *inside {
	if in.Error == "" && len(in.Facts)+len(in.Changes)+len(in.Checks)+len(in.Notes) == 0 {
		return nil
	}
	return in
}

// Place says in which namespace a request was, and who made it.
func (w *waterfall) Place() []fact {
	var list []fact
	for _, f := range []fact{
		{"namespace", w.Request.Namespace}, {"user", w.Request.User}, {"at", w.At}, {"total", w.Total}, {"in admission itself", w.Own},
		{"registrations of revision", w.Revision}, {"trace", w.ID}, {"audit ID", w.AuditID},
	} {
		if f.Text != "" {
			list = append(list, f)
		}
	}
	if w.Request.DryRun {
		list = append(list, fact{"dry run", "yes"})
	}
	return list
}

// maxRemarks is how many remarks about a step are in Markdown.
const maxRemarks = 10

func (w *waterfall) markdown(m *markdown) {
	m.line("**%s**, %s in total", escaped(string(w.Outcome)), w.Total)
	for _, f := range w.Place() {
		m.item("%s: %s", f.Name, code(f.Text))
	}
	m.end()
	if w.Rejected != nil {
		m.line("Rejected by %s: %s", code(w.Rejected.By), code(w.Rejected.Text))
	}
	m.head("step", "", "took", "")
	for i := range w.Spans {
		s := &w.Spans[i]
		if s.Pass != "" {
			m.row("**"+escaped(s.Pass)+"**", "", "", "")
			continue
		}
		name := code(s.Name)
		if s.Child {
			name = "&nbsp;&nbsp;" + name
		}
		var remarks []string
		if in := s.Inside; in != nil {
			if in.Error != "" {
				remarks = append(remarks, code(in.Error))
			}
			for k := range in.Checks {
				c := &in.Checks[k]
				if c.Because == "" {
					continue
				}
				remarks = append(remarks, "false: "+code(c.Because))
				for _, v := range c.Values {
					remarks = append(remarks, code(v.Name)+" is "+code(v.Text))
				}
			}
			for k, note := range in.Notes {
				if k == maxRemarks {
					remarks = append(remarks, fmt.Sprintf("and %d more", len(in.Notes)-k))
					break
				}
				remarks = append(remarks, escaped(note))
			}
			for k := range in.Changes[:min(len(in.Changes), 5)] {
				e := &in.Changes[k]
				remarks = append(remarks, code(e.Field))
			}
			if more := len(in.Changes) + in.More - 5; more > 0 {
				remarks = append(remarks, fmt.Sprintf("and %s more", report.Count(more, "field")))
			}
		}
		m.row(name, escaped(s.State), s.Took, strings.Join(remarks, ", "))
	}
	m.end()
}

// Summary is what a list says about a trace.
type Summary struct {
	ID, Operation, Object, Namespace, User string
	Outcome                                trace.Outcome
	// At is when the request came, Calls how many reviews were delivered.
	At    time.Time
	Calls int
	// TotalMicros is how long the request took, OwnMicros how long admission itself took.
	TotalMicros, OwnMicros int64
}

// Summarize returns what a list says about a trace.
func Summarize(r *trace.Record) Summary {
	return Summary{
		ID: r.ID, Operation: r.Request.Operation, Object: r.Request.Object(), Namespace: r.Request.Namespace, User: r.Request.User,
		Outcome: r.Outcome, At: r.Start.Time, Calls: r.Reviews(), TotalMicros: r.TotalMicros, OwnMicros: r.OwnMicros,
	}
}

// traceRow is a row of a list of traces.
type traceRow struct {
	Summary
	Href, State, Time, Total, Own string
	Bar                           bar
}

// maxRows is how many traces a list has.
const maxRows = 1000

// OfSummaries returns the list of some traces, in their order.
func OfSummaries(list []Summary, links Links) View {
	var most int64 = 1
	more := max(len(list)-maxRows, 0)
	list = list[:len(list)-more]
	for i := range list {
		most = max(most, list[i].TotalMicros)
	}
	rows := make([]traceRow, len(list))
	for i := range list {
		s := list[i]
		rows[i] = traceRow{
			Summary: s, Href: links.trace(s.ID), State: outcomeClass(s.Outcome), Time: s.At.UTC().Format("15:04:05"),
			Total: Brief(s.TotalMicros), Own: Brief(s.OwnMicros), Bar: newBar(int(s.TotalMicros), int(most), "accent"),
		}
	}
	return View{Title: "Requests", template: "traces", data: struct {
		Rows []traceRow
		More int
	}{rows, more}, markdown: func(m *markdown) {
		m.head("time", "outcome", "operation", "object", "namespace", "user", "calls", "total")
		for i := range rows {
			r := &rows[i]
			m.row(r.At.UTC().Format(time.DateTime), escaped(string(r.Outcome)), escaped(r.Operation), code(r.Object), code(r.Namespace), code(r.User), fmt.Sprint(r.Calls), r.Total)
		}
		m.end()
	}}
}

// maxWhole is how many traces a page of several has the waterfalls of.
const maxWhole = 20

// OfTraces returns the list of some traces, the oldest first, and the waterfalls of the latest ones.
func OfTraces(records []*trace.Record) View {
	latest := slices.Clone(records)
	slices.Reverse(latest)
	summaries := make([]Summary, len(latest))
	whole := map[string]bool{}
	var waterfalls []*waterfall
	for i, r := range latest {
		summaries[i] = Summarize(r)
		if i < maxWhole {
			whole[r.ID] = true
			waterfalls = append(waterfalls, newWaterfall(r, Links{}))
		}
	}
	list := OfSummaries(summaries, Links{Trace: func(id string) string {
		if whole[id] {
			return "#t-" + id
		}
		return ""
	}})
	return View{Title: "The latest requests", template: "requests", markdown: list.markdown, data: struct {
		List  any
		Whole []*waterfall
		Left  int
	}{list.data, waterfalls, len(latest) - len(waterfalls)}}
}
