package policy

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/engine/expression"
	"github.com/gatehouse-dev/gatehouse/internal/engine/mutation"
)

// Outcome is the result of one mutation's expression.
type Outcome struct {
	// Change is the change by the mutation; nil if the expression failed with Err.
	Change *mutation.Change
	Err    error
	// Cost and Elapsed include the expression and the variables that it uses.
	Cost    uint64
	Elapsed time.Duration
}

// Mutate evaluates one mutation. Each evaluation has a budget of its own, and evaluates its
// variables anew (S16.9, S16.14).
func (p *Policy) Mutate(ctx context.Context, in *Input, index int) Outcome {
	start := time.Now()
	m := &p.Mutations[index]
	if err := m.Patch.Err(); err != nil {
		// The text is the compiler's message without a prefix (S16.3).
		return Outcome{Err: err, Elapsed: time.Since(start)}
	}
	run := p.Run(ctx, in)
	defer run.End()
	o, err := run.Eval(m.Patch)
	p.spent.mutations[index].Note(o.Cost)
	out := Outcome{Cost: min(o.Cost, expression.RunBudget), Err: err}
	if err == nil {
		out.Err = o.Err
	}
	if out.Err == nil {
		out.Change, out.Err = mutation.NewChange(m.Type(), o.Value)
	}
	out.Elapsed = time.Since(start)
	return out
}

// Type is the type of the mutation.
func (m *Mutation) Type() mutation.Type {
	if m.JSONPatch {
		return mutation.JSONPatch
	}
	return mutation.ApplyConfiguration
}
