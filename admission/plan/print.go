package plan

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Print writes a plan as a text, one line per step: what acts is numbered in its order,
// and what does not has the reason. The error is the writer's.
func (p *Plan) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	acts := 0
	for i := range p.Steps {
		s := &p.Steps[i]
		number, text := "", s.String()
		if s.Effect == Call || s.Effect == Evaluate || s.Effect == Pend || s.Effect == Run {
			acts++
			number = fmt.Sprint(acts, ".")
		}
		if s.Reason != nil {
			text = s.Reason.Message
		} else if more := s.summary(); more != "" {
			text += ": " + more
		}
		if s.Effect == Ignored {
			text += " (failurePolicy is Ignore)"
		}
		name := s.Plugin
		if s.Entry != nil {
			name = s.Entry.String()
		}
		fmt.Fprintf(t, "%-2s %s\t%s\t%s\n", number, s.Effect, name, text)
		s.printEvaluations(t)
	}
	return t.Flush()
}

// printEvaluations writes what a policy found that is not as it should be, and which
// bindings do not apply, one line each.
func (s *Step) printEvaluations(w io.Writer) {
	for i := range s.Evaluations {
		e := &s.Evaluations[i]
		for k := range e.Validations {
			v := &e.Validations[k]
			if v.Verdict == "holds" || v.Index == nil {
				continue
			}
			fmt.Fprintf(w, "\t\tvalidation %d %s", *v.Index+1, v.Verdict)
			if e.Param != "" {
				fmt.Fprintf(w, " with param %s", e.Param)
			}
			fmt.Fprintf(w, ", cost %d of %d", v.Cost, v.CostLimit)
			if v.Because != "" {
				fmt.Fprintf(w, ", because this is false: %s", v.Because)
			}
			fmt.Fprintln(w)
		}
	}
	for i := range s.Evaluations {
		e := &s.Evaluations[i]
		for k := range e.Mutations {
			m := &e.Mutations[k]
			fmt.Fprintf(w, "\t\tmutation %d, %s, binding %s", m.Index+1, m.Type, e.Bindings[0])
			if e.Param != "" {
				fmt.Fprintf(w, " with param %s", e.Param)
			}
			fmt.Fprintf(w, ", cost %d of %d: %s", m.Cost, m.CostLimit, m.Verdict)
			if m.Patch != nil {
				fmt.Fprintf(w, " by %s", m.Patch)
			}
			fmt.Fprintln(w)
		}
	}
	for i := range s.Consequences {
		if c := &s.Consequences[i]; c.Binding != "" && !c.Ignored {
			actions := ""
			if len(c.Actions) > 0 {
				actions = fmt.Sprintf(" (%s)", strings.Join(c.Actions, ", "))
			}
			fmt.Fprintf(w, "\t\tbinding %s%s: %s\n", c.Binding, actions, strings.ReplaceAll(c.Message, "\n", " "))
		}
	}
	for i := range s.Bindings {
		fmt.Fprintf(w, "\t\tbinding %s does not apply: %s\n", s.Bindings[i].Binding, s.Bindings[i].Reason.Message)
	}
}
