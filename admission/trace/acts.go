package trace

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// Deed is the effect of an Act on a request.
type Deed string

// The deeds. WouldReject and WouldChange are the effects of webhooks and policies that are not
// enforced (S28.2).
const (
	Rejects     Deed = "rejects"
	WouldReject Deed = "would reject"
	// FailsOpen: a webhook or policy failed, and the request continued.
	FailsOpen Deed = "fails open"
	// Notes: a policy has a violation or error that its binding reports as a warning or in the
	// audit log.
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

// Act is one effect of a webhook, policy, initializer or plugin on a request.
type Act struct {
	Deed Deed
	// Step is the step of the act.
	Step *StepRecord
	// Kind is ByWebhook, ByPolicy, ByInitializer or ByPlugin. By is the actor: a webhook as
	// CONFIGURATION/NAME, or the name of the policy, the initializers or the plugin.
	Kind, By string
	// Entry is the webhook or the policy; nil for initializers and plugins. Binding is the binding
	// of the policy.
	Entry   *EntryRecord
	Binding string
	// Index is the index of the policy's validation or mutation; nil if the act has none.
	Index *int
	// Message is the user's message or the error; empty for changes.
	Message string
	// Enforcement is set if the webhook or policy is not enforced.
	Enforcement *Enforcement
	// Patch is the change, or the change that enforcement would have made. As is the kind of the
	// patched object; empty for the kind of the request.
	Patch []PatchOperation
	As    string
}

// WarnedBy reports whether a warning in the response was caused by this act of a policy.
func (a *Act) WarnedBy(warning string) bool {
	return a.Kind == ByPolicy && strings.HasPrefix(warning, warningOf(a.Entry.Kind, a.By, a.Binding))
}

// Fields returns the fields of the change without duplicates.
func (a *Act) Fields() []string {
	var list []string
	for p := range each(a.Patch) {
		if field := cmp.Or(p.Field, p.Path); p.Op != "test" && !slices.Contains(list, field) {
			list = append(list, field)
		}
	}
	return list
}

// Part is the part of one policy or one webhook in a step. One of Judgement and Call is set.
type Part struct {
	Judgement *JudgementRecord
	Call      *CallRecord
	// Unused is a sentence that explains why the answer of the call was not used; empty if the
	// answer was used.
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

// Each yields all steps.
func (r *Record) Each() iter.Seq[*StepRecord] { return each(r.Steps) }

// Several reports whether the request was about several objects.
func (r *Record) Several() bool {
	return slices.ContainsFunc(r.Steps, func(s StepRecord) bool { return s.Name != r.Steps[0].Name })
}

// LastAttempt yields the steps of the attempt that was stored. After a write conflict, admission
// runs again with the current object.
func (r *Record) LastAttempt() iter.Seq[*StepRecord] {
	for i := len(r.Steps) - 1; i > 0; i-- {
		if s, first := &r.Steps[i], &r.Steps[0]; s.Plugin == first.Plugin && s.Pass == first.Pass && s.Round == first.Round && s.Namespace == first.Namespace && s.Name == first.Name {
			return each(r.Steps[i:])
		}
	}
	return r.Each()
}

// Parts yields the parts of all policies and webhooks in the step, in order.
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

// parts returns the parts of all steps.
func (r *Record) parts() (list []Part) {
	for s := range r.Each() {
		list = slices.AppendSeq(list, s.Parts())
	}
	return list
}

// Calls yields the webhook calls whose answers were used.
func (r *Record) Calls() iter.Seq[*CallRecord] {
	var list []*CallRecord
	for _, p := range r.parts() {
		if p.Call != nil && p.Unused == "" {
			list = append(list, p.Call)
		}
	}
	return slices.Values(list)
}

// Skipped yields the webhooks and policies that were considered and did not apply, if the trace has
// them.
func (r *Record) Skipped() iter.Seq[*SkipRecord] {
	var list []*SkipRecord
	for s := range r.Each() {
		list = slices.AppendSeq(list, each(s.Skips))
	}
	return slices.Values(list)
}

// Judged yields the judgements of all policies.
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

// Cost returns the cost of all policy expressions together, in CEL cost units.
func (r *Record) Cost() (cost int64) {
	for j := range r.Judged() {
		for e := range each(j.Evaluations) {
			cost += e.Cost
		}
	}
	return cost
}

// Acts yields all acts, in order.
func (r *Record) Acts() iter.Seq[Act] { return r.only(func(*Act) bool { return true }) }

// Rejections yields the acts that rejected the request.
func (r *Record) Rejections() iter.Seq[Act] {
	return r.only(func(a *Act) bool { return a.Deed == Rejects && !a.Step.Allowed })
}

// Spared yields the rejections and changes that did not happen because the webhook or policy is not
// enforced.
func (r *Record) Spared() iter.Seq[Act] {
	return r.only(func(a *Act) bool { return a.Deed == WouldReject || a.Deed == WouldChange })
}

// SparedBy yields the acts of Spared that belong to the webhook configuration, policy or binding
// with a kind and a name. The acts of a binding are acts of its policy.
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

// only yields the acts for which wanted returns true.
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

// Acts yields the acts of the step. If no policy and no webhook caused the rejection, the plugin
// did.
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

// change returns a with a change: patch if it was made, or would if enforcement would have made it.
// A patch that was refused or changes nothing counts as no change; the result then has no Deed.
func change(a Act, made bool, patch, would []PatchOperation) Act {
	switch {
	case len(would) > 0:
		a.Deed, a.Patch = WouldChange, would
	case made && len(patch) > 0:
		a.Deed, a.Patch = Changes, patch
	}
	return a
}

// acts returns the acts of the policy. An element without a Deed is left out.
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

// acts returns the effect of the webhook's answer and the webhook's change.
func (c *CallRecord) acts() []Act {
	a := Act{Kind: ByWebhook, By: c.Webhook.String(), Entry: &c.Webhook, Enforcement: c.Enforcement, As: as(c.Equivalent, c.Kind)}
	changed := change(a, c.Mutated, c.Patch, c.WouldPatch)
	a.Deed, a.Message = c.Deed(), c.Error
	return []Act{a, changed}
}

// Deed returns the effect of the webhook's answer; empty if the webhook allowed the request.
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

// as returns the kind in which a webhook or a policy saw the object; empty for the kind of the
// request.
func as(equivalent bool, kind KindRecord) string {
	if !equivalent {
		return ""
	}
	return kind.String()
}

// String returns the entry as messages name it: CONFIGURATION/NAME, or the object's name if the
// object is the entry.
func (e *EntryRecord) String() string {
	return (&registration.Origin{Configuration: e.Configuration, Name: e.Name}).String()
}

// Names returns the names of the entries that the rule affected. If some were left out, the last
// element is their number.
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
