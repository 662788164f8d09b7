package policy

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/engine/expression"
	"github.com/gatehouse-dev/gatehouse/internal/engine/mutation"
)

// Outcome is the result of one mutation's expression.
type Outcome struct {
	// Change is the change that the mutation asks for; nil if the expression failed with Err.
	Change *mutation.Change
	Err    error
	// Cost and Elapsed are those of the expression and of the variables that it uses.
	Cost    uint64
	Elapsed time.Duration
}

// Mutate evaluates one mutation. Each has a budget of its own, and evaluates the variables
// that it uses anew (S16.9, S16.14).
func (p *Policy) Mutate(ctx context.Context, in *Input, index int) Outcome {
	start := time.Now()
	m := &p.Mutations[index]
	if err := m.Patch.Err(); err != nil {
		// The text is that of the compiler alone (S16.3).
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
