package plan

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

// Outcome is what becomes of one hook when a request is made.
type Outcome struct {
	Hook *snapshot.Hook
	// Step is set if the hook's rules match.
	Step *Step
	// Decision is what was decided; without a Step it has only a Reason.
	Decision Decision
}

// Explain says of every hook of a source what becomes of it, in order. The hooks
// that For gives a step are decided with Decide, all of them with the objects as
// they are: a hook that changes the object can change what becomes of those after
// it.
//
// Unlike For, it looks at every hook, and allocates.
func Explain(ctx context.Context, s *snapshot.Snapshot, source registration.Source, r *Request, e Equivalents, in *Input) []Outcome {
	steps := For(s, source, r, e)
	no := Reason{Code: NoRule, request: r}
	if Exempt(r.Kind, r.Resource.GroupResource()) {
		no.Code = NotAsked
	} else if e != nil {
		no.others = e.EquivalentResourcesFor(r.Resource, r.Subresource)
	}
	outcomes := make([]Outcome, len(s.Hooks(source)))
	for i, h := range s.Hooks(source) {
		o := &outcomes[i]
		o.Hook = h
		if len(steps) > 0 && steps[0].Hook == h {
			o.Step, steps = &steps[0], steps[1:]
			o.Decision = o.Step.Decide(ctx, r, in)
			continue
		}
		o.Decision.Reason = no
		o.Decision.Reason.hook = h
	}
	return outcomes
}

// Print writes outcomes as a text, one line per hook: the hooks that are called
// numbered in their order, and the others with the reason. An error of Decide is
// shown where it rejects the request. The error is the writer's.
func Print(w io.Writer, outcomes []Outcome) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	calls := 0
	for i := range outcomes {
		o := &outcomes[i]
		number, verb, text := "", "skip", o.Decision.Reason.String()
		switch {
		case o.ignored():
			text = strings.ReplaceAll(errors.Unwrap(o.Decision.Err).Error(), "\n", " ") + " (failurePolicy is Ignore)"
		case o.Decision.Err != nil:
			verb, text = "fail", strings.ReplaceAll(o.Decision.Err.Error(), "\n", " ")
		case o.Decision.Applies:
			calls++
			number, verb, text = fmt.Sprint(calls, "."), "call", o.Step.String()
		}
		fmt.Fprintf(t, "%-2s %s\t%s\t%s\n", number, verb, o.Hook, text)
	}
	return t.Flush()
}

// ignored tells that match conditions failed, and that the hook is not called for
// that (S2.32).
func (o *Outcome) ignored() bool {
	var e *ConditionError
	return errors.As(o.Decision.Err, &e) && o.Hook.FailurePolicy == registration.Ignore
}

// String says what the hook is told, and which rule is the reason: "as apps/v1
// Deployment: rule 2, through an equivalent resource".
func (s *Step) String() string {
	kind := s.Kind.GroupVersion().String() + " " + s.Kind.Kind
	text := fmt.Sprintf("as %s: rule %d", kind, s.Rule+1)
	if s.Equivalent {
		text += ", through an equivalent resource"
	}
	return text
}
