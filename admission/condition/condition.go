package condition

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	limits "k8s.io/apiserver/pkg/apis/cel"
)

// Condition is one named CEL expression.
type Condition struct {
	Name       string
	Expression string
}

// Set is the conditions of one hook, compiled. Nil is the set without conditions:
// it is always true.
type Set struct {
	programs []program
}

type program struct {
	Condition
	program cel.Program
	// err is why the expression does not compile; program is then nil.
	err *CompileError
}

// Compile compiles conditions. An expression that does not compile does no harm
// until it is evaluated (S2.33). Of no conditions it makes nil.
func Compile(conditions []Condition) *Set {
	if len(conditions) == 0 {
		return nil
	}
	s := &Set{programs: make([]program, len(conditions))}
	env := environments().StoredExpressionsEnv()
	for i, c := range conditions {
		p := &s.programs[i]
		p.Condition = c
		p.program, p.err = compile(env, c.Expression)
	}
	return s
}

// ErrOutOfBudget tells that the conditions of a hook cost more together than they
// may (S2.34).
var ErrOutOfBudget = errors.New("validation failed due to running out of cost budget, no further validation rules will be run")

// Result is what the conditions of a hook say about a request:
//
//	False       Err      the hook is
//	""          nil      asked: all conditions are true
//	a name      nil      not asked
//	""          not nil  whatever its failure policy says
//
// There is no fourth case: a false condition outweighs errors (S2.32).
type Result struct {
	// False is the first condition that is false, nil when none is.
	False *Condition
	// Err is what went wrong, in one sentence (S2.33). errors.Is tells whether it
	// is ErrOutOfBudget.
	Err error
	// Errors counts the expressions that failed, up to the false one. Running out
	// of budget is not counted.
	Errors int
	// Elapsed is how long the evaluation took.
	Elapsed time.Duration
}

// Eval evaluates the conditions in order, and ends at the first false one. A
// failing expression does not end it, since a later one may be false.
func (s *Set) Eval(ctx context.Context, in *Input) Result {
	if s == nil {
		return Result{}
	}
	start := time.Now()
	r := s.eval(ctx, &activation{in: in})
	r.Elapsed = time.Since(start)
	return r
}

func (s *Set) eval(ctx context.Context, a *activation) Result {
	var failures []error
	budget := uint64(limits.RuntimeCELCostBudgetMatchConditions)
	for i := range s.programs {
		p := &s.programs[i]
		holds, cost, err := p.eval(ctx, a)
		if cost > budget {
			return Result{Err: ErrOutOfBudget, Errors: len(failures)}
		}
		budget -= cost
		switch {
		case err != nil:
			failures = append(failures, err)
		case !holds:
			return Result{False: &p.Condition, Errors: len(failures)}
		}
	}
	if len(failures) > 0 {
		return Result{Err: utilerrors.NewAggregate(failures), Errors: len(failures)}
	}
	return Result{}
}

// eval evaluates one expression. The cost counts even if there is an error.
func (p *program) eval(ctx context.Context, a *activation) (holds bool, cost uint64, err error) {
	if p.err != nil {
		return false, 0, fmt.Errorf("compilation error: %w", p.err)
	}
	value, details, err := p.program.ContextEval(ctx, a)
	cost = math.MaxUint64
	if details != nil {
		if actual := details.ActualCost(); actual != nil {
			cost = *actual
		}
	}
	if err != nil {
		return false, cost, fmt.Errorf("expression '%s' resulted in error: %w", p.Expression, err)
	}
	return value == types.True, cost, nil
}
