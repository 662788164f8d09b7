package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
)

// Links are the addresses to which a Document links. A nil function means no links, as in a standalone page.
type Links struct {
	// Trace returns the address of a trace, Entry the address of a registration.
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

// Bounds for the drawing of a trace.
const (
	maxItems   = 2000
	maxChanges = 200
)

// OfTrace draws a trace.
func OfTrace(r *trace.Record, links Links) *Document {
	d := &Document{Title: "Trace of " + r.Request.Operation + " " + r.Request.Object()}
	d.Blocks = append(d.Blocks, factsOf(r))
	for act := range r.Rejections() {
		c := Callout{Class: Bad, Head: "Rejected by", By: act.By, Text: act.Message, Stands: true}
		if act.Entry != nil {
			c.Href = links.entry(act.Entry.Kind, act.Entry.Configuration)
		}
		d.Blocks = append(d.Blocks, c)
		break
	}
	d.Blocks = append(d.Blocks, auditOf(r)...)
	if r.Refused() && r.Response.Message != "" {
		d.Blocks = append(d.Blocks, Said{r.Response.Message, Bad})
	}
	w := &drawing{record: r, links: links, start: r.Start.Time, several: r.Several()}
	// A step may end after the measured total.
	whole := max(r.TotalMicros, 1)
	for s := range r.Each() {
		whole = max(whole, s.Start.Sub(w.start).Microseconds()+s.Micros)
	}
	w.scale = barWidth / float64(whole)
	outline := Outline{ID: r.ID}
	for i := range 5 {
		outline.Ticks = append(outline.Ticks, Brief(whole*int64(i)/4))
	}
	drawn, more := 0, 0
	for s := range r.Each() {
		if drawn >= maxItems {
			more++
			continue
		}
		item := w.step(s)
		drawn += 1 + len(item.Parts)
		outline.Items = append(outline.Items, item)
	}
	d.Blocks = append(d.Blocks, outline)
	if more > 0 {
		d.Blocks = append(d.Blocks, Note("%d more steps are not drawn.", more))
	}
	return d
}

func outcomeClass(r *trace.Record) Class {
	if r.Refused() {
		return Bad
	}
	switch r.Outcome {
	case trace.OutcomeAllowed:
		return Good
	case trace.OutcomeFailedOpen, trace.OutcomeUnknown:
		return Warning
	}
	return Bad
}

// factsOf returns the facts of a request and its trace.
func factsOf(r *trace.Record) Facts {
	q := &r.Request
	about := q.Operation + " " + q.Object()
	if q.Namespace != "" {
		about += " in namespace " + q.Namespace
	}
	own := ""
	if r.Audit == nil {
		own = Brief(r.OwnMicros)
	}
	list := Facts{
		{Name: "request", Text: q.Operation + " " + q.Object(), Phrase: about},
		{Name: "user", Text: q.User, Phrase: "by " + q.User},
		{Name: "dry run", Text: map[bool]string{true: "yes"}[q.DryRun], Phrase: "dry run"},
		{},
		{Name: "outcome", Text: OutcomeText(r), Phrase: OutcomeText(r), Class: outcomeClass(r)},
		{Name: "total", Text: Brief(r.TotalMicros), Phrase: Brief(r.TotalMicros) + " in total"},
		{Name: "in admission itself", Text: own, Phrase: Brief(r.OwnMicros) + " of it in admission itself"},
		{},
		{Name: "trace", Text: r.ID, Phrase: "trace " + r.ID},
		{Name: "at", Text: r.Start.UTC().Format(time.RFC3339Nano), Phrase: "at " + r.Start.UTC().Format(time.RFC3339Nano)},
		{Name: "audit ID", Text: r.AuditID, Phrase: "audit ID " + r.AuditID},
		{Name: "registrations of revision", Text: r.Revision, Phrase: "with the registrations of revision " + r.Revision},
		{},
		{Name: "contents", Text: map[bool]string{true: "omitted"}[r.Redacted], Phrase: "Contents are omitted."},
		{Name: "namespace", Text: q.Namespace},
		{Name: "kind", Text: q.Kind.String()},
		{Name: "version", Text: q.Resource.Version},
		{Name: "UID", Text: q.UID},
	}
	return slices.DeleteFunc(list, func(f Fact) bool { return f.Name != "" && strings.TrimSpace(f.Text) == "" })
}

// auditOf returns the audit log's facts about the whole request; nothing if the trace is not derived from an
// audit log.
func auditOf(r *trace.Record) []Block {
	a := r.Audit
	if a == nil {
		return nil
	}
	answer := ""
	if a.Code != 0 {
		answer = strings.TrimSpace(fmt.Sprint(a.Code, " ", a.Reason))
	}
	facts := Facts{
		{Name: "audit log", Text: a.Source, Phrase: "by the audit log, " + a.Source},
		{Name: "level", Text: a.Level, Phrase: "level " + a.Level},
		{Name: "stage", Text: a.Stage, Phrase: "stage " + a.Stage},
		{Name: "truncated", Text: map[bool]string{true: "yes"}[a.Truncated], Phrase: "truncated"},
		{},
		{Name: "answer", Text: answer, Phrase: "answered " + answer},
		{Name: "rejected by", Text: a.RejectedBy, Phrase: "rejected by " + a.RejectedBy},
		{Name: "impersonated by", Text: a.ImpersonatedBy, Phrase: "impersonated by " + a.ImpersonatedBy},
	}
	list := []Block{slices.DeleteFunc(facts, func(f Fact) bool { return f.Name != "" && f.Text == "" })}
	told := false
	for s := range r.Each() {
		told = told || s.Error == a.Message
	}
	if a.Message != "" && !told {
		list = append(list, Said{a.Message, Bad})
	}
	var more Together
	for _, key := range slices.Sorted(maps.Keys(a.Annotations)) {
		more = append(more, Note("audit annotation %s: %s", key, a.Annotations[key]))
	}
	for _, text := range a.Unknown {
		more = append(more, Note("Unknown: %s.", text))
	}
	if len(more) > 0 {
		list = append(list, more)
	}
	return list
}

// noteOrigin notes how a part of a trace is known, unless the audit log itself has it.
func (i *Item) noteOrigin(k trace.Known) {
	switch k {
	case trace.Derived:
		i.remark(Plain, "derived: the registrations say so, and the audit log does not")
	case trace.Unknown:
		i.remark(Warning, "the audit log does not say in which pass")
	}
}

// drawing builds the items of a trace.
type drawing struct {
	record  *trace.Record
	links   Links
	start   time.Time
	scale   float64
	several bool
}

// bar is the position of a step or call on the time axis.
func (w *drawing) bar(start time.Time, micros int64, class string) *Bar {
	left := min(max(float64(start.Sub(w.start).Microseconds()), 0)*w.scale, barWidth-2)
	// A step of zero duration stays visible.
	return &Bar{Left: left, Width: min(max(float64(micros)*w.scale, 2), barWidth-left), Class: class}
}

// say adds a line to the contents of an item.
func (i *Item) say(class Class, format string, args ...any) {
	i.Inside = append(i.Inside, Line{Mark: Mark{fmt.Sprintf(format, args...), class}})
}

// remark adds a short comment to an item.
func (i *Item) remark(class Class, format string, args ...any) {
	i.Remarks = append(i.Remarks, Mark{fmt.Sprintf(format, args...), class})
}

// edits adds the changes of a patch to the contents.
func (i *Item) edits(patch []trace.PatchOperation) {
	if e := editsOf(patch); len(e.List) > 0 {
		i.Inside = append(i.Inside, e)
	}
}

func editsOf(patch []trace.PatchOperation) (e Edits) {
	for i := range patch {
		p := &patch[i]
		switch {
		case p.Op == "test":
		case len(e.List) == maxChanges:
			e.More++
		default:
			one := Edit{Op: p.Op, Path: p.Path, From: p.From, Field: cmp.Or(p.Field, p.Path), Was: string(p.Was), Is: string(p.Value)}
			if p.WasBytes > 0 {
				one.Was = fmt.Sprintf("(%d bytes or more)", p.WasBytes)
			}
			e.List = append(e.List, one)
		}
	}
	return e
}

// step draws a step with its calls and evaluations.
func (w *drawing) step(s *trace.StepRecord) Item {
	one := Item{Group: s.Pass + " pass", Name: s.Plugin, Bar: w.bar(s.Start.Time, s.Micros, "plugin"), Took: Brief(s.Micros)}
	if s.Known != "" {
		// An audit log has no durations of steps.
		one.Took = ""
	}
	if s.Round > 0 {
		one.Again = "run again"
	}
	if s.Known == trace.Unknown {
		one.noteOrigin(s.Known)
	}
	if w.several {
		one.Object = s.Name
	}
	if len(s.Patch) > 0 {
		one.remark(Noted, "changed the object")
		one.edits(s.Patch)
	}
	for _, name := range s.Pending {
		one.say(Noted, "waits for initializer %s", name)
	}
	if len(s.Initializing) > 0 {
		text := "initializer " + strings.Join(s.Initializing, ", ")
		if len(s.Written) > 0 {
			text += " changed the object"
		}
		one.say(Noted, "%s", text)
		one.edits(s.Written)
	}
	for i := range s.Conditions {
		c, text := &s.Conditions[i], ""
		switch {
		case c.Excluded:
			if text = "not called: " + c.Entry.String() + ", by its match conditions"; c.Error != "" {
				text += ", which failed: " + c.Error
			}
		case c.Errors > 0:
			text = "the match conditions of " + c.Entry.String() + " failed"
		default:
			continue
		}
		if c.Known != "" {
			text += "; " + string(c.Known)
		}
		one.say(Plain, "%s", text)
	}
	for i := range s.Exclusions {
		x := &s.Exclusions[i]
		one.say(Warning, "exclusion rule %s, %s: %s", x.Rule, x.Effect, strings.Join(x.Names(), ", "))
	}
	for i := range s.Skips {
		one.say(Plain, "skipped: %s, %s", &s.Skips[i].Entry, s.Skips[i].Reason)
	}
	said := false
	for part := range s.Parts() {
		if part.Judgement != nil {
			one.Parts = append(one.Parts, w.judgement(s, part.Judgement))
			continue
		}
		one.Parts = append(one.Parts, w.call(s, part.Call, part.Unused))
		said = said || part.Unused == "" && part.Call.Error == s.Error
	}
	if !s.Allowed {
		one.Verdict, one.Bar.Class = Mark{"rejected", Bad}, string(Bad)
		if !said {
			one.Open = true
			one.Inside = append(one.Inside, Said{s.Error, Bad})
		}
	} else if one.Quiet = len(one.Inside)+len(one.Parts)+len(s.Conditions) == 0; one.Quiet {
		one.remark(Plain, "allowed")
	}
	one.Inside = append(one.Inside, details(
		Fact{Name: "namespace", Text: unlessUsual(s.Namespace, w.record.Request.Namespace)}, Fact{Name: "registrations of revision", Text: unlessUsual(s.Revision, w.record.Revision)}, readAt(s.ReadAt),
	)...)
	return one
}

// unlessUsual returns the text, or "" if it is the usual one.
func unlessUsual(text, usual string) string {
	if text == usual {
		return ""
	}
	return text
}

// readAt returns the time at which the registrations were read.
func readAt(t *trace.Time) Fact {
	if t == nil {
		return Fact{}
	}
	return Fact{Name: "registrations read at", Text: t.UTC().Format(time.RFC3339Nano)}
}

// details draws facts without a phrase, except empty ones.
func details(list ...Fact) []Block {
	list = slices.DeleteFunc(list, func(f Fact) bool { return f.Text == "" })
	if len(list) == 0 {
		return nil
	}
	return []Block{Facts(list)}
}

// call draws the call of a webhook. unused is the reason why the response was not used; empty if it was.
func (w *drawing) call(s *trace.StepRecord, c *trace.CallRecord, unused string) Item {
	one := Item{
		Name: c.Webhook.String(), Href: w.links.entry(c.Webhook.Kind, c.Webhook.Configuration),
		Verdict: Mark{c.Verdict, Good}, Bar: w.bar(c.Start.Time, c.Micros, s.Pass), Took: Brief(c.Micros),
	}
	if c.Known != "" {
		one.Took = ""
	}
	if c.Verdict == trace.Unheard.String() {
		one.Verdict.Class = Plain
	}
	one.noteOrigin(c.Known)
	if c.WebhookKnown != "" {
		one.remark(Plain, "its configuration is %s", c.WebhookKnown)
	}
	switch c.Deed() {
	case trace.Rejects:
		// The response to the client may have more than the error of the call.
		one.Verdict.Class, one.Bar.Class, one.Open = Bad, string(Bad), !s.Allowed
	case trace.WouldReject, trace.FailsOpen:
		one.Verdict.Class, one.Bar.Class = Warning, string(Warning)
	}
	if unused != "" {
		one.Verdict.Class, one.Bar.Class = Plain, s.Pass
		one.say(Noted, "%s", unused)
	}
	if words := map[string]string{trace.Ahead.String(): "ahead of its turn", trace.Again.String(): "twice"}[c.Turn]; words != "" && unused == "" {
		one.remark(Plain, "called %s", words)
	}
	if c.Equivalent {
		one.remark(Plain, "as %s", c.Kind)
	}
	if !c.Sent && c.Verdict != trace.Allowed.String() && c.Known == "" {
		one.remark(Plain, "not delivered")
	}
	if c.ClientGone {
		one.remark(Plain, "the client no longer waited for the request")
	}
	if c.Ignored {
		one.remark(Warning, "%s", Ignored)
	}
	patch := c.Patch
	switch {
	case len(c.WouldPatch) > 0:
		patch = c.WouldPatch
		one.remark(Warning, "would change the object")
	case c.Mutated:
		one.remark(Noted, "changed the object")
	}
	if c.Enforcement != nil {
		one.remark(Warning, "%s", goesOn(c.Enforcement))
	}
	if c.Error != "" {
		one.Inside = append(one.Inside, Said{c.Error, one.Verdict.Class})
	}
	one.edits(patch)
	for _, text := range c.Warnings {
		one.say(Warning, "warning: %s", text)
	}
	for _, key := range slices.Sorted(maps.Keys(c.AuditAnnotations)) {
		one.say(Plain, "audit annotation %s: %s", key, c.AuditAnnotations[key])
	}
	for _, what := range c.Deprecated {
		one.say(Warning, "the certificate of the webhook is deprecated: %s", what)
	}
	code := ""
	if c.Code != 0 {
		code = fmt.Sprint(c.Code)
	}
	one.Inside = append(one.Inside, details(append(matched(&c.Webhook, c.FailurePolicy, c.Rule, c.Equivalent, c.Resource, c.Subresource),
		Fact{Name: "review", Text: c.ReviewVersion}, Fact{Name: "UID of the review", Text: c.UID}, Fact{Name: "answer", Text: c.Fate},
		Fact{Name: "failed at", Text: c.Class}, Fact{Name: "reason", Text: c.Reason}, Fact{Name: "code", Text: code})...)...)
	return one
}

// Ignored is the remark on a failure that was ignored.
const Ignored = "ignored: failurePolicy is Ignore"

// goesOn is the remark on a warn-only or audit-only entry after which the request continues.
func goesOn(e *trace.Enforcement) string { return "the request goes on: " + e.String() }

// matched returns the facts of a match: the reason why a webhook or policy was asked, and the resource if it
// is not the request's own.
func matched(e *trace.EntryRecord, failurePolicy string, rule int, equivalent bool, resource trace.ResourceRecord, subresource string) []Fact {
	list := []Fact{{Name: "kind", Text: e.Kind}, {Name: "source", Text: e.Source}, {Name: "failurePolicy", Text: failurePolicy}, {Name: "rule", Text: fmt.Sprint(rule + 1)}}
	if e.Index > 0 {
		list = append(list, Fact{Name: "place", Text: fmt.Sprint(e.Index + 1)})
	}
	if about := (&trace.RequestRecord{Resource: resource, Subresource: subresource}); equivalent {
		list = append(list, Fact{Name: "sees", Text: about.Object() + " " + resource.Version})
	}
	return list
}

// judgement draws the result of a policy.
func (w *drawing) judgement(s *trace.StepRecord, j *trace.JudgementRecord) Item {
	one := Item{Name: j.Policy.String(), Href: w.links.entry(j.Policy.Kind, j.Policy.Configuration)}
	if j.Equivalent {
		one.remark(Plain, "as %s", j.Kind)
	}
	var micros int64
	start := s.Start.Time
	for i := range j.Evaluations {
		e := &j.Evaluations[i]
		if i == 0 {
			start = e.Start.Time
		}
		micros += e.Micros
		one.Inside = append(one.Inside, Items{evaluation(e)})
	}
	one.Bar, one.Took = w.bar(start, micros, s.Pass), Brief(micros)
	if j.Known != "" {
		one.Took = ""
	}
	one.noteOrigin(j.Known)
	if one.Verdict = Judged(s, j); one.Verdict.Class == Bad {
		one.Bar.Class, one.Open = string(Bad), true
	}
	for i := range j.Consequences {
		one.Inside = append(one.Inside, Consequence(&j.Consequences[i]))
	}
	if j.MoreConsequences > 0 {
		one.say(Plain, "and %d more", j.MoreConsequences)
	}
	one.Inside = append(one.Inside, details(matched(&j.Policy, j.FailurePolicy, j.Rule, j.Equivalent, j.Resource, j.Subresource)...)...)
	return one
}

// verdicts are the words and classes for the results of a policy.
var verdicts = map[trace.Deed]Mark{
	trace.Rejects: {"denied", Bad}, trace.WouldReject: {"would deny", Warning}, trace.FailsOpen: {"failed", Warning}, trace.Notes: {"violated", Warning},
	trace.WouldChange: {"would change the object", Warning}, trace.Changes: {"changed the object", Noted},
}

// Judged returns the result of a policy in a step, in a few words.
func Judged(s *trace.StepRecord, j *trace.JudgementRecord) Mark {
	verdict := without(j)
	for act := range s.Acts() {
		if worse := verdicts[act.Deed]; act.Entry == &j.Policy && rank(worse.Class) > rank(verdict.Class) {
			verdict = worse
		}
	}
	return verdict
}

// without returns the result of a policy that had no effect.
func without(j *trace.JudgementRecord) Mark {
	excluded, spared, mutates := 0, 0, false
	for i := range j.Evaluations {
		e := &j.Evaluations[i]
		if e.FalseCondition != "" {
			excluded++
		}
		if e.Spared {
			spared++
		}
		mutates = mutates || len(e.Mutations) > 0
	}
	switch n := len(j.Evaluations); {
	case n == 0 && j.Known != "":
		return Mark{"asked", Plain}
	case n == 0:
		return Mark{"not evaluated", Plain}
	case excluded == n:
		return Mark{"excluded", Plain}
	case spared == n:
		return Mark{"not repeated", Plain}
	case mutates:
		return Mark{"changed nothing", Plain}
	}
	return Mark{"holds", Good}
}

// rank orders classes by severity, the most severe last.
func rank(c Class) int { return slices.Index([]Class{Plain, Good, Noted, Warning, Bad}, c) }

func evaluation(e *trace.EvaluationRecord) Item {
	one := Item{Name: "evaluated", Took: Brief(e.Micros)}
	if e.Param != nil {
		one.Name += " with " + e.Param.String()
	}
	one.Name += " for " + strings.Join(e.Bindings, ", ")
	if e.MoreBindings > 0 {
		one.Name += fmt.Sprintf(" and %d more", e.MoreBindings)
	}
	one.remark(Plain, "cost %d", e.Cost)
	if e.FalseCondition != "" {
		one.remark(Plain, "match condition %q is false", e.FalseCondition)
	}
	if e.Spared {
		one.remark(Plain, "not repeated")
	}
	if e.Error != "" {
		one.Inside = append(one.Inside, Said{e.Error, Bad})
	}
	for k := range e.Validations {
		v := &e.Validations[k]
		check := Check{
			Verdict: Mark{v.Verdict, checkClasses[v.Verdict]}, Cost: fmt.Sprintf("cost %d", v.Cost), Took: Brief(v.Nanos / 1000),
			Expression: v.Expression, Message: v.Message, Because: v.Because,
		}
		if v.Index != nil {
			check.Place = fmt.Sprintf("validation %d", *v.Index+1)
		}
		for _, part := range v.Values {
			check.Values = append(check.Values, Fact{Name: part.Expression, Text: part.Value})
		}
		one.Inside = append(one.Inside, check)
	}
	for k := range e.Mutations {
		m := &e.Mutations[k]
		item := Item{Name: fmt.Sprintf("mutation %d, %s, cost %d", m.Index+1, m.Type, m.Cost), Verdict: Mark{"changed nothing", Plain}, Took: Brief(m.Micros)}
		patch := m.Patch
		switch {
		case m.Error != "":
			item.Verdict = Mark{"failed", Bad}
			item.Inside = append(item.Inside, Said{m.Error, Bad})
		case len(m.WouldPatch) > 0:
			item.Verdict, patch = verdicts[trace.WouldChange], m.WouldPatch
			if e.Enforcement != nil {
				item.remark(Warning, "%s", goesOn(e.Enforcement))
			}
		case m.Mutated:
			item.Verdict = verdicts[trace.Changes]
		}
		item.edits(patch)
		one.Inside = append(one.Inside, Items{item})
	}
	for k := range e.AuditAnnotations {
		switch a := &e.AuditAnnotations[k]; {
		case a.Error != "":
			one.say(Warning, "audit annotation %s failed: %s", a.Key, a.Error)
		case a.Value != "":
			one.say(Plain, "audit annotation %s: %s", a.Key, a.Value)
		}
	}
	return one
}

// checkClasses are the classes of the results of expressions.
var checkClasses = map[string]Class{"holds": Good, "violated": Bad, "failed": Bad}

// Consequence returns the reaction to a violation or an error, as a line.
func Consequence(c *trace.ConsequenceRecord) Line {
	var line Line
	var of []string
	if c.Binding != "" {
		of = append(of, "binding "+c.Binding)
	}
	if c.Param != nil {
		of = append(of, "param "+c.Param.String())
	}
	line.Text = strings.TrimPrefix(strings.Join(of, " with ")+": ", ": ") + c.Message
	if len(c.Actions) > 0 {
		line.Text += " (" + strings.Join(c.Actions, ", ") + ")"
	}
	line.Class = Warning
	switch {
	case c.Denied:
		line.Class = Bad
	case c.Ignored:
		line.Text += ", " + Ignored
	case c.Spared && c.Enforcement != nil:
		line.Text += ", " + goesOn(c.Enforcement)
	}
	more := []string{c.Code}
	if c.Index != nil {
		more = append(more, fmt.Sprintf("place %d", *c.Index+1))
	}
	if c.Annotation != "" {
		more = append(more, "audit annotation "+c.Annotation)
	}
	if c.Reason != "" {
		more = append(more, "reason "+c.Reason)
	}
	line.More = strings.Join(more, ", ")
	return line
}

// maxRows bounds the traces of a list.
const maxRows = 1000

// OfList draws a list of traces, in their order.
func OfList(list []*trace.Record, links Links) *Document {
	d := &Document{Title: "Requests"}
	if len(list) == 0 {
		d.Blocks = []Block{Note("No trace matches. A server keeps the traces of the latest writes that it handled.")}
		return d
	}
	var most int64 = 1
	more := max(len(list)-maxRows, 0)
	list = list[:len(list)-more]
	for _, r := range list {
		most = max(most, r.TotalMicros)
	}
	table := Table{Columns: []Column{{Title: "Time (UTC)"}, {Title: "Outcome"}, {Title: "Request", Wide: true}, {Title: "Namespace"}, {Title: "User"}, {Title: "Calls", Right: true}, {Title: "Took", Right: true}, {Title: "Of the slowest"}}}
	for _, r := range list {
		request, outcome := Code(r.Request.Operation+" "+r.Request.Object()), Text(OutcomeText(r))
		request.Href, outcome.Badge, outcome.Class = links.trace(r.ID), true, outcomeClass(r)
		bars := []Bar{NewBar(int(r.TotalMicros), int(most), "accent")}
		table.Add(r.Start.UTC().Format(time.DateTime), outcome, request, Code(r.Request.Namespace), Code(r.Request.User), r.Reviews(), Brief(r.TotalMicros), bars).ID = r.ID
	}
	d.Blocks = []Block{table}
	if more > 0 {
		d.Blocks = append(d.Blocks, Note("%d more requests are not listed.", more))
	}
	return d
}

// maxWhole bounds the traces of a page that are drawn with their steps.
const maxWhole = 20

// OfTraces draws a list of traces, the oldest first, and the steps of the latest ones.
func OfTraces(records []*trace.Record) *Document {
	latest := slices.Clone(records)
	slices.Reverse(latest)
	whole := map[string]bool{}
	for _, r := range latest[:min(len(latest), maxWhole)] {
		whole[r.ID] = true
	}
	d := OfList(latest, Links{Trace: func(id string) string {
		if whole[id] {
			return "#t-" + id
		}
		return ""
	}})
	d.Title = "The latest requests"
	for _, r := range latest[:min(len(latest), maxWhole)] {
		one := OfTrace(r, Links{})
		d.Blocks = append(append(d.Blocks, Heading(r.Request.Operation+" "+r.Request.Object())), one.Blocks...)
	}
	if left := len(latest) - maxWhole; left > 0 {
		d.Blocks = append(d.Blocks, Note("The steps of %d earlier requests are left out: gatehouse trace ID has them.", left))
	}
	return d
}
