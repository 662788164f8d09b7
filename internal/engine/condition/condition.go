package condition

import (
	"context"
	"time"

	"github.com/google/cel-go/common/types"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/gatehouse-dev/gatehouse/internal/engine/expression"
)

// Condition is one named CEL expression.
type Condition struct {
	Name       string
	Expression string
}

// Set is the compiled conditions of one webhook or policy. Nil is the set without conditions, which
// is always true.
type Set struct {
	programs []program
	witness  expression.Witness
}

type program struct {
	Condition
	*expression.Expression
	most expression.Most
}

// Compile returns the set of conditions, with the expressions of a cache, compiled with scope. An
// expression that does not compile fails only when it is evaluated (S2.33). Without conditions,
// Compile returns nil.
func Compile(cache *expression.Cache, scope expression.Scope, conditions []Condition) *Set {
	if len(conditions) == 0 {
		return nil
	}
	s := &Set{programs: make([]program, len(conditions))}
	for i, c := range conditions {
		p := &s.programs[i]
		p.Condition, p.Expression = c, cache.Expression(c.Expression, scope, nil, expression.Bool)
	}
	return s
}

// Watch sets the witness of the set's evaluations. Call it before the set is used.
func (s *Set) Watch(w expression.Witness) {
	if s != nil {
		s.witness = w
	}
}

// Costs calls f with the highest cost so far of each condition.
func (s *Set) Costs(f func(i int, e *expression.Expression, most *expression.Most)) {
	if s == nil {
		return
	}
	for i := range s.programs {
		f(i, s.programs[i].Expression, &s.programs[i].most)
	}
}

// Result is the result of the conditions of a webhook or policy for a request:
//
//	False       Err      effect
//	nil         nil      all conditions are true: the webhook or policy applies
//	not nil     nil      the webhook or policy does not apply
//	nil         not nil  the failure policy decides
//
// There is no fourth case: a false condition outweighs errors (S2.32).
type Result struct {
	// False is the first false condition; nil if there is none.
	False *Condition
	// Err is the error of the conditions, in one sentence (S2.33). It may wrap
	// expression.ErrOutOfBudget.
	Err error
	// Errors counts the expressions that failed before the false one. An exhausted budget is not
	// counted.
	Errors int
	// Cost is the cost of the expressions that were evaluated.
	Cost uint64
	// Elapsed is the duration of the evaluation.
	Elapsed time.Duration
}

// Eval evaluates the conditions in order, and ends at the first false one. A failing expression
// does not end the evaluation, because a later one may be false. params is the variable params for
// the conditions of a policy; nil is null.
func (s *Set) Eval(ctx context.Context, r *expression.Values, own schema.GroupVersionResource, params runtime.Object) Result {
	if s == nil {
		return Result{}
	}
	start := time.Now()
	run := r.NewRun(ctx, expression.Options{
		Resource: own, Authorizer: true, Params: params, Budget: expression.ConditionsBudget, Witness: s.witness,
	})
	defer run.End()
	result := s.eval(run)
	result.Elapsed = time.Since(start)
	return result
}

func (s *Set) eval(run *expression.Run) Result {
	var failures []error
	var r Result
	for i := range s.programs {
		p := &s.programs[i]
		o, err := run.Eval(p.Expression)
		p.most.Note(o.Cost)
		r.Cost += min(o.Cost, expression.ConditionsBudget)
		switch {
		case err != nil:
			r.Err = err
			return r
		case o.Err != nil:
			failures = append(failures, o.Err)
			r.Errors++
		case o.Value != types.True:
			r.False = &p.Condition
			return r
		}
	}
	if len(failures) > 0 {
		r.Err = utilerrors.NewAggregate(failures)
	}
	return r
}

// Expressions returns the compiled conditions, in order.
func (s *Set) Expressions() []*expression.Expression {
	if s == nil {
		return nil
	}
	list := make([]*expression.Expression, len(s.programs))
	for i := range s.programs {
		list[i] = s.programs[i].Expression
	}
	return list
}
