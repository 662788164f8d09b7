package trace

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// Deed is what an Act did to a request.
type Deed string

// The deeds. One that rejects or changes and was soft would have done so (S28.2).
const (
	Rejects     Deed = "rejects"
	WouldReject Deed = "would reject"
	// FailsOpen: a webhook or policy failed, and the request went on.
	FailsOpen Deed = "fails open"
	// Notes: a policy found something, which its binding warns of or records.
	Notes       Deed = "notes"
	Changes     Deed = "changes"
	WouldChange Deed = "would change"
)

// The values of Act.Kind.
const (
	ByWebhook     = "webhook"
	ByPolicy      = "policy"
	ByInitializer = "initializer"
	ByPlugin      = "plugin"
)

// Act is one thing that somebody did to a request: who, what and in which words.
type Act struct {
	Deed Deed
	// Step is the step in which it was done.
	Step *StepRecord
	// Kind is ByWebhook, ByPolicy, ByInitializer or ByPlugin. By is who acted: a webhook as
	// CONFIGURATION/NAME, or the name of the policy, the initializers or the plugin.
	Kind, By string
	// Entry is the webhook or the policy; nil for others. Binding is that of a policy.
	Entry   *EntryRecord
	Binding string
	// Index is the place of the validation or mutation of the policy; nil if the act is about none.
	Index *int
	// Message is what the user gets, and why something failed; empty for changes.
	Message string
	// Enforcement is present for what was soft.
	Enforcement *Enforcement
	// Patch is the change that was, or would have been, made. As is the kind of its object;
	// empty if that is the request's own.
	Patch []PatchOperation
	As    string
}

// WarnedBy reports whether a warning of the answer is about the act of a policy.
func (a *Act) WarnedBy(warning string) bool {
	return a.Kind == ByPolicy && strings.HasPrefix(warning, warningOf(a.Entry.Kind, a.By, a.Binding))
}

// Fields are the fields of the change, each once.
func (a *Act) Fields() []string {
	var list []string
	for p := range each(a.Patch) {
		if field := cmp.Or(p.Field, p.Path); p.Op != "test" && !slices.Contains(list, field) {
			list = append(list, field)
		}
	}
	return list
}

// Part is what one policy, or one webhook, did in a step. One of Judgement and Call is set.
type Part struct {
	Judgement *JudgementRecord
	Call      *CallRecord
	// Unused says in a sentence why the answer of the call was not used; empty if it was.
	Unused string
}

// each yields pointers to the elements of a list.
func each[T any](list []T) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for i := range list {
			if !yield(&list[i]) {
				return
			}
		}
	}
}

// Each yields the steps.
func (r *Record) Each() iter.Seq[*StepRecord] { return each(r.Steps) }

// Several reports whether the request was about several objects.
func (r *Record) Several() bool {
	return slices.ContainsFunc(r.Steps, func(s StepRecord) bool { return s.Name != r.Steps[0].Name })
}

// LastAttempt yields the steps of the attempt that was stored. A write that met another one is
// judged again, on the object as it is then.
func (r *Record) LastAttempt() iter.Seq[*StepRecord] {
	for i := len(r.Steps) - 1; i > 0; i-- {
		if s, first := &r.Steps[i], &r.Steps[0]; s.Plugin == first.Plugin && s.Pass == first.Pass && s.Round == first.Round && s.Namespace == first.Namespace && s.Name == first.Name {
			return each(r.Steps[i:])
		}
	}
	return r.Each()
}

// Parts yields what policies and webhooks did in the step, in order.
func (s *StepRecord) Parts() iter.Seq[Part] {
	var list []Part
	for j := range each(s.Judgements) {
		list = append(list, Part{Judgement: j})
	}
	for c := range each(s.Calls) {
		list = append(list, Part{Call: c})
	}
	for c := range each(s.Discarded) {
		why := "The answer was not used: the object changed before its turn."
		if c.Fate == NotReached.String() {
			why = "The answer was not used: the request was rejected before its turn."
		}
		list = append(list, Part{Call: c, Unused: why})
	}
	return slices.Values(list)
}

// parts are what policies and webhooks did in all steps.
func (r *Record) parts() (list []Part) {
	for s := range r.Each() {
		list = slices.AppendSeq(list, s.Parts())
	}
	return list
}

// Calls yields the calls of webhooks whose answers count.
func (r *Record) Calls() iter.Seq[*CallRecord] {
	var list []*CallRecord
	for _, p := range r.parts() {
		if p.Call != nil && p.Unused == "" {
			list = append(list, p.Call)
		}
	}
	return slices.Values(list)
}

// Skipped yields the webhooks and policies that were looked at and did not apply, if the trace has them.
func (r *Record) Skipped() iter.Seq[*SkipRecord] {
	var list []*SkipRecord
	for s := range r.Each() {
		list = slices.AppendSeq(list, each(s.Skips))
	}
	return slices.Values(list)
}

// Judged yields what policies did.
func (r *Record) Judged() iter.Seq[*JudgementRecord] {
	var list []*JudgementRecord
	for _, p := range r.parts() {
		if p.Judgement != nil {
			list = append(list, p.Judgement)
		}
	}
	return slices.Values(list)
}

// Reviews counts the reviews that were delivered to webhooks.
func (r *Record) Reviews() int {
	n := 0
	for _, p := range r.parts() {
		if p.Call != nil && p.Call.Sent {
			n++
		}
	}
	return n
}

// Cost is what all expressions of policies cost together, in the units of CEL.
func (r *Record) Cost() (cost int64) {
	for j := range r.Judged() {
		for e := range each(j.Evaluations) {
			cost += e.Cost
		}
	}
	return cost
}

// Acts yields what was done to the request, in order.
func (r *Record) Acts() iter.Seq[Act] { return r.only(func(*Act) bool { return true }) }

// Rejections yields what rejected the request.
func (r *Record) Rejections() iter.Seq[Act] {
	return r.only(func(a *Act) bool { return a.Deed == Rejects && !a.Step.Allowed })
}

// Spared yields what would have rejected or changed the request if it had been hard.
func (r *Record) Spared() iter.Seq[Act] {
	return r.only(func(a *Act) bool { return a.Deed == WouldReject || a.Deed == WouldChange })
}

// SparedBy yields what a registration would have done if it had been hard: one of a kind and a name,
// or a binding, whose acts are those of its policy.
func (r *Record) SparedBy(kind, name string) iter.Seq[Act] {
	return func(yield func(Act) bool) {
		for a := range r.Spared() {
			itself := a.Entry.Kind == kind && a.Entry.Configuration == name
			binding := a.Entry.Kind+"Binding" == kind && a.Binding == name
			if (itself || binding) && !yield(a) {
				return
			}
		}
	}
}

// Changes yields the changes of the object.
func (r *Record) Changes() iter.Seq[Act] {
	return r.only(func(a *Act) bool { return a.Deed == Changes })
}

// only yields the acts that are wanted.
func (r *Record) only(wanted func(*Act) bool) iter.Seq[Act] {
	var list []Act
	for s := range r.Each() {
		for a := range s.Acts() {
			if wanted(&a) {
				list = append(list, a)
			}
		}
	}
	return slices.Values(list)
}

// Acts yields what was done in the step. A rejection that no policy and no webhook is the reason of
// is the plugin's.
func (s *StepRecord) Acts() iter.Seq[Act] {
	list := []Act{
		change(Act{Kind: ByPlugin, By: s.Plugin}, true, s.Patch, nil),
		change(Act{Kind: ByInitializer, By: strings.Join(s.Initializing, ", ")}, true, s.Written, nil),
	}
	for p := range s.Parts() {
		switch {
		case p.Judgement != nil:
			list = append(list, p.Judgement.acts()...)
		case p.Unused == "":
			list = append(list, p.Call.acts()...)
		}
	}
	if !s.Allowed && !slices.ContainsFunc(list, func(a Act) bool { return a.Deed == Rejects }) {
		list = append(list, Act{Deed: Rejects, Kind: ByPlugin, By: s.Plugin, Message: s.Error})
	}
	list = slices.DeleteFunc(list, func(a Act) bool { return a.Deed == "" })
	for a := range each(list) {
		a.Step = s
	}
	return slices.Values(list)
}

// change returns a with the change that was, or would have been, made; without a Deed if there is none.
// A patch that was refused, or that changes nothing, is none.
func change(a Act, made bool, patch, would []PatchOperation) Act {
	switch {
	case len(would) > 0:
		a.Deed, a.Patch = WouldChange, would
	case made && len(patch) > 0:
		a.Deed, a.Patch = Changes, patch
	}
	return a
}

// acts are what the policy did; one without a Deed is none.
func (j *JudgementRecord) acts() (list []Act) {
	act := Act{Kind: ByPolicy, By: j.Policy.String(), Entry: &j.Policy, As: as(j.Equivalent, j.Kind)}
	for c := range each(j.Consequences) {
		a := act
		a.Deed, a.Binding, a.Index, a.Message, a.Enforcement = c.deed(), c.Binding, c.Index, cmp.Or(c.Message, c.Code), c.Enforcement
		list = append(list, a)
	}
	for e := range each(j.Evaluations) {
		for m := range each(e.Mutations) {
			a := act
			if len(e.Bindings) > 0 {
				a.Binding = e.Bindings[0]
			}
			a.Index, a.Enforcement = new(m.Index), e.Enforcement
			list = append(list, change(a, m.Mutated, m.Patch, m.WouldPatch))
		}
	}
	return list
}

func (c *ConsequenceRecord) deed() Deed {
	switch {
	case c.Denied:
		return Rejects
	case c.Spared:
		return WouldReject
	case c.Ignored:
		return FailsOpen
	case len(c.Actions) > 0:
		return Notes
	}
	return ""
}

// acts are what the webhook did: what its answer comes to, and a change.
func (c *CallRecord) acts() []Act {
	a := Act{Kind: ByWebhook, By: c.Webhook.String(), Entry: &c.Webhook, Enforcement: c.Enforcement, As: as(c.Equivalent, c.Kind)}
	changed := change(a, c.Mutated, c.Patch, c.WouldPatch)
	a.Deed, a.Message = c.Deed(), c.Error
	return []Act{a, changed}
}

// Deed is what the answer of the webhook comes to; empty if the webhook allowed the request.
func (c *CallRecord) Deed() Deed {
	switch {
	case c.Verdict == Allowed.String(), c.Verdict == Unheard.String():
		return ""
	case c.Ignored:
		return FailsOpen
	case c.Enforcement != nil:
		return WouldReject
	}
	return Rejects
}

// as names the kind in which a webhook or a policy saw the object; empty for the request's own.
func as(equivalent bool, kind KindRecord) string {
	if !equivalent {
		return ""
	}
	return kind.String()
}

// String names the entry as messages do: CONFIGURATION/NAME, or the name of the object that is the
// entry.
func (e *EntryRecord) String() string {
	return (&registration.Origin{Configuration: e.Configuration, Name: e.Name}).String()
}

// Names names what the rule was about; the last name counts those that are left out.
func (x *ExclusionRecord) Names() []string {
	var names []string
	for e := range each(x.Entries) {
		names = append(names, e.String())
	}
	if x.More > 0 {
		names = append(names, fmt.Sprintf("%d more", x.More))
	}
	return names
}

// String names the kind as GROUP/VERSION KIND.
func (k KindRecord) String() string {
	return strings.TrimPrefix(k.Group+"/"+k.Version, "/") + " " + k.Kind
}

// String names the object as messages do: NAMESPACE/NAME, or the name.
func (p *ParamRecord) String() string { return (&Param{p.Namespace, p.Name}).String() }
