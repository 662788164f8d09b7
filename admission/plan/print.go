package plan

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Print writes the plan as text, one line per step: steps that apply are numbered in order, and
// other steps have a reason. The error is the writer's.
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
		} else if more := s.Summary(); more != "" {
			text += ": " + more
		}
		if s.Effect == Ignored && s.Enforcement == nil {
			text += " (failurePolicy is Ignore)"
		}
		name := s.Plugin
		if s.Entry != nil {
			name = s.Entry.String()
		}
		fmt.Fprintf(t, "%-2s %s\t%s\t%s\n", number, s.Effect, name, text)
		for _, detail := range s.Details() {
			fmt.Fprintf(t, "\t\t%s\n", detail)
		}
	}
	return t.Flush()
}
