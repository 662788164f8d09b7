package admission

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
)

// The scenarios write a trace briefly: no times and no ID, so that two traces of the same events
// have the same text. The traces for people are in internal/readers/view.

// traceText has a line for each step, and below it one for each webhook.
func traceText(t *trace.Trace) string {
	var b strings.Builder
	records := t.Record(trace.RecordOptions{}).Steps
	for i, s := range t.Steps() {
		patch := s.Patch()
		switch {
		case s.Run != nil:
			b.WriteString(runText(s.Run, &records[i]))
			continue
		case s.Err != nil:
			fmt.Fprintf(&b, "%s: %s\n  the request is rejected: %v\n", passText(s.Pass, s.Round), s.Plugin, s.Err)
		case patch != nil:
			fmt.Fprintf(&b, "%s: %s: changed the object: %s\n", passText(s.Pass, s.Round), s.Plugin, patch)
		default:
			fmt.Fprintf(&b, "%s: %s: no objection\n", passText(s.Pass, s.Round), s.Plugin)
		}
	}
	return b.String()
}

// passText returns the name of a pass. The validating pass has one round.
func passText(p registration.Pass, round int) string {
	if round > 0 {
		return p.String() + " pass, second round"
	}
	return p.String() + " pass"
}

// runText describes a run. record is the record of its step.
func runText(r *trace.Run, record *trace.StepRecord) string {
	var b strings.Builder
	q := &r.Request
	fmt.Fprintf(&b, "%s: %s: %s %s", passText(r.Source.Descriptor().Pass, r.Round), r.Source.Descriptor().Plugin, q.Operation, q.Resource.Resource)
	if q.Subresource != "" {
		fmt.Fprintf(&b, "/%s", q.Subresource)
	}
	name := q.Name
	if q.Namespace != "" {
		name = q.Namespace + "/" + name
	}
	fmt.Fprintf(&b, " %q", name)
	if q.DryRun {
		b.WriteString(", dry run")
	}
	b.WriteString("\n")
	for i := range r.Exclusions {
		x := &r.Exclusions[i]
		for k := range x.Entries {
			fmt.Fprintf(&b, "  exclusion rule %s of the server %s %s\n", x.Rule, x.Did(), &x.Entries[k])
		}
	}
	for _, name := range r.Pending {
		fmt.Fprintf(&b, "  the object waits for %s\n", name)
	}
	if len(r.Initializing) > 0 {
		fmt.Fprintf(&b, "  the turn of %s", strings.Join(r.Initializing, ", "))
		if r.Written != nil {
			fmt.Fprintf(&b, ": changed the object: %s", r.Written)
		}
		b.WriteString("\n")
	}
	for i := range record.Judgements {
		fmt.Fprintf(&b, "  %s\n", judgementText(&record.Judgements[i]))
	}
	for i := range r.Calls {
		fmt.Fprintf(&b, "  %s\n", callText(&r.Calls[i]))
	}
	for i := range r.Discarded {
		fmt.Fprintf(&b, "  %s\n", callText(&r.Discarded[i]))
	}
	for _, s := range r.Skips {
		if s.Entry.Source.Descriptor().Policies {
			fmt.Fprintf(&b, "  %s is not evaluated: %s\n", &s.Entry, s.Reason)
			continue
		}
		fmt.Fprintf(&b, "  %s is not called: %s\n", &s.Entry, s.Reason)
	}
	if r.Err != nil {
		fmt.Fprintf(&b, "  the request is rejected: %v\n", r.Err)
		for _, cause := range causes(r.Err) {
			fmt.Fprintf(&b, "    and also: %s\n", cause)
		}
	}
	return b.String()
}

// causes returns the further rejections that an API status lists.
func causes(err error) []string {
	var status interface{ Status() metav1.Status }
	if !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	var out []string
	for _, c := range status.Status().Details.Causes {
		if c.Type == trace.DeniedCause {
			out = append(out, c.Message)
		}
	}
	return out
}

// callText describes the call on one line.
func callText(c *trace.Call) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, ", &c.Entry)
	switch {
	case c.UID == "":
		b.WriteString("not called: ")
	case c.Fate != trace.Used, c.Turn == trace.Ahead:
		b.WriteString("called ahead of its turn ")
	case c.Turn == trace.Again:
		b.WriteString("called again ")
	default:
		b.WriteString("called ")
	}
	if c.UID != "" {
		kind := c.Kind.GroupVersion().String() + " " + c.Kind.Kind
		fmt.Fprintf(&b, "about a %s: ", kind)
	}
	b.WriteString(c.Verdict.String())
	if c.Verdict != trace.Allowed {
		fmt.Fprintf(&b, ": %v", c.Err)
	}
	if c.Ignored {
		if c.FailurePolicy == registration.Ignore {
			b.WriteString("; the request continues because failurePolicy is Ignore")
		} else {
			b.WriteString("; the request continues because an exclusion rule ignores failures")
		}
	}
	if c.Spared() {
		fmt.Fprintf(&b, "; the request continues (%s)", c.Enforcement)
	}
	switch {
	case len(c.WouldPatch) > 0:
		fmt.Fprintf(&b, ", and would change the object: %s (%s)", c.WouldPatch, c.Enforcement)
	case c.Mutated:
		fmt.Fprintf(&b, ", and changed the object: %s", c.Patch)
	case len(c.Patch) > 0:
		fmt.Fprintf(&b, ", with a patch that changes nothing: %s", c.Patch)
	}
	switch c.Fate {
	case trace.Superseded:
		b.WriteString("; answer discarded because the object changed before its turn")
	case trace.NotReached:
		b.WriteString("; answer discarded because the request was rejected before its turn")
	}
	return b.String()
}

// judgementText has a line for the policy, and one for each mutation and consequence.
func judgementText(j *trace.JudgementRecord) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, about a %s: ", &j.Policy, j.Kind)
	excluded := 0
	for i := range j.Evaluations {
		if j.Evaluations[i].FalseCondition != "" {
			excluded++
		}
	}
	switch {
	case len(j.Evaluations) == 0:
		b.WriteString("not evaluated")
	case excluded == len(j.Evaluations):
		fmt.Fprintf(&b, "match condition %q is false", j.Evaluations[0].FalseCondition)
	case j.Policy.Kind == registration.MutatingPolicies.String():
		b.WriteString(changesText(j))
	case len(j.Consequences) == 0:
		b.WriteString("no objection")
	case denied(j):
		b.WriteString("denied")
	default:
		b.WriteString("not denied")
	}
	if n := len(j.Evaluations); n > 1 {
		fmt.Fprintf(&b, ", evaluated with %d params", n)
	}
	for i := range j.Evaluations {
		writeMutations(&b, &j.Evaluations[i])
	}
	for i := range j.Consequences {
		fmt.Fprintf(&b, "\n    %s", consequenceText(&j.Consequences[i]))
	}
	return b.String()
}

// writeMutations writes one line for each mutation of a mutating policy. Failed mutations are among
// the consequences.
func writeMutations(b *strings.Builder, e *trace.EvaluationRecord) {
	for i := range e.Mutations {
		m := &e.Mutations[i]
		if m.Error != "" {
			continue
		}
		fmt.Fprintf(b, "\n    binding %s", e.Bindings[0])
		if e.Param != nil {
			fmt.Fprintf(b, " with param %s", e.Param)
		}
		fmt.Fprintf(b, ": mutation %d ", m.Index+1)
		if len(m.WouldPatch) > 0 {
			fmt.Fprintf(b, "would change the object: %s (%s)", operations(m.WouldPatch), e.Enforcement)
		} else if m.Mutated {
			fmt.Fprintf(b, "changed the object: %s", operations(m.Patch))
		} else {
			b.WriteString("changed nothing")
		}
	}
}

// changesText describes the changes by a mutating policy.
func changesText(j *trace.JudgementRecord) string {
	changed, spared := 0, 0
	for i := range j.Evaluations {
		e := &j.Evaluations[i]
		if e.Spared {
			spared++
		}
		for k := range e.Mutations {
			if e.Mutations[k].Mutated {
				changed++
			}
		}
	}
	switch {
	case denied(j):
		return "denied"
	case spared == len(j.Evaluations):
		return "not repeated"
	case changed == 0:
		return "changed nothing"
	case changed == 1:
		return "changed the object"
	}
	return fmt.Sprintf("changed the object %d times", changed)
}

// consequenceText describes the consequence on one line.
func consequenceText(c *trace.ConsequenceRecord) string {
	var b strings.Builder
	if c.Binding != "" {
		fmt.Fprintf(&b, "binding %s", c.Binding)
		if c.Param != nil {
			fmt.Fprintf(&b, " with param %s", c.Param)
		}
		b.WriteString(": ")
	}
	b.WriteString(c.Message)
	switch {
	case c.Ignored:
		b.WriteString("; the request goes on, because failurePolicy is Ignore")
	case c.Spared:
		fmt.Fprintf(&b, " (%s)", c.Enforcement)
	case len(c.Actions) > 0:
		fmt.Fprintf(&b, " (%s)", strings.Join(c.Actions, ", "))
	}
	return b.String()
}

// denied reports whether the policy rejects the request.
func denied(j *trace.JudgementRecord) bool {
	return slices.ContainsFunc(j.Consequences, func(c trace.ConsequenceRecord) bool { return c.Denied })
}

// operations returns the operations of a patch in their original JSON.
func operations(patch []trace.PatchOperation) []byte {
	patch = slices.Clone(patch)
	for i := range patch {
		patch[i].Field, patch[i].Was, patch[i].WasBytes = "", nil, 0
	}
	data, err := json.Marshal(patch)
	if err != nil {
		panic(err)
	}
	return data
}
