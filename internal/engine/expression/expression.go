package expression

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	limits "k8s.io/apiserver/pkg/apis/cel"
)

// Result is the type that an expression must have. Types are compared exactly: an
// expression of type dyn is not a bool (S13.14).
type Result uint8

const (
	// Bool is for conditions and validations.
	Bool Result = iota
	// Text is for messages.
	Text
	// TextOrNull is for audit annotations.
	TextOrNull
	// Anything is for variables.
	Anything
	// ApplyConfiguration is for mutations that merge an Object.
	ApplyConfiguration
	// JSONPatch is for mutations that are a list of operations.
	JSONPatch
)

// results are the types of each Result; none means any type.
var results = [...][]*cel.Type{
	Bool:               {cel.BoolType},
	Text:               {cel.StringType},
	TextOrNull:         {cel.StringType, cel.NullType},
	Anything:           nil,
	ApplyConfiguration: {cel.ObjectType("Object")},
	JSONPatch:          {cel.ListType(cel.ObjectType("JSONPatch"))},
}

// Cost limits of expressions, in CEL cost units (S16.14).
const (
	// PerExpression is the limit of each expression and of each variable.
	PerExpression = limits.PerCallLimit
	// RunBudget is the total budget of the expressions of a Run.
	RunBudget = limits.RuntimeCELCostBudget
	// ConditionsBudget is the total budget of the match conditions of an entry.
	ConditionsBudget = limits.RuntimeCELCostBudgetMatchConditions
)

// ErrOutOfBudget is the error when the expressions of a Run exceed their budget.
var ErrOutOfBudget = errors.New("validation failed due to running out of cost budget, no further validation rules will be run")

// Expression is a CEL expression. It is compiled once, when it is first needed.
type Expression struct {
	key
	once    sync.Once
	program cel.Program
	// output is the static type; nil if the expression does not compile.
	output *cel.Type
	err    *CompileError
	// env is the environment in which a variable is compiled; nil for other expressions, which use
	// the environment of their scope. parts is the expression in the form for a Witness.
	env   *cel.Env
	parts witnessed
}

// key identifies an expression: expressions with the same key are equal.
type key struct {
	text      string
	scope     Scope
	variables *Variables
	result    Result
}

// New returns an expression. variables are the fields of the variable variables; nil means that the
// expression has no such variable.
func New(text string, scope Scope, variables *Variables, result Result) *Expression {
	return &Expression{key: key{text, scope, variables, result}}
}

// Text returns the expression as it was written.
func (e *Expression) Text() string { return e.text }

// Scope returns the scope of the expression.
func (e *Expression) Scope() Scope { return e.scope }

// Err returns the compilation error of the expression; nil if it compiles. The error is a
// *CompileError.
func (e *Expression) Err() error {
	if e.compile(); e.err != nil {
		return e.err
	}
	return nil
}

func (e *Expression) compile() {
	e.once.Do(func() {
		env, err := e.environment()
		if err != nil {
			e.err = &CompileError{Detail: fmt.Sprintf("unexpected error loading CEL environment: %v", err), Internal: true}
			return
		}
		e.program, e.output, e.err = compile(env, e.text, e.result)
	})
}

// environment returns the environment in which the expression is compiled.
func (e *Expression) environment() (*cel.Env, error) {
	if e.variables != nil {
		return e.variables.environment(e.scope)
	}
	return environmentOf(e.scope).StoredExpressionsEnv(), nil
}

// Eval evaluates the expression. The cost counts even if there is an error; it is math.MaxUint64 if
// it is unknown. An error quotes the expression (S2.33).
func (e *Expression) Eval(ctx context.Context, vars interpreter.Activation) (value ref.Val, cost uint64, err error) {
	if e.compile(); e.err != nil {
		return nil, 0, fmt.Errorf("compilation error: %w", e.err)
	}
	value, cost, err = evaluate(ctx, e.program, vars)
	if err != nil {
		return nil, cost, fmt.Errorf("expression '%s' resulted in error: %w", e.text, err)
	}
	return value, cost, nil
}

// evaluate runs a program, and returns its cost.
func evaluate(ctx context.Context, program cel.Program, vars interpreter.Activation) (value ref.Val, cost uint64, err error) {
	value, details, err := program.ContextEval(ctx, vars)
	cost = math.MaxUint64
	if details != nil {
		if actual := details.ActualCost(); actual != nil {
			cost = *actual
		}
	}
	return value, cost, err
}

// Outcome is the result of one expression of a Run.
type Outcome struct {
	// Value is nil if there is an error.
	Value ref.Val
	// Err is the evaluation error.
	Err error
	// Cost is the cost of the expression and of the variables that it evaluated first. Elapsed is
	// the duration of the evaluation.
	Cost    uint64
	Elapsed time.Duration
}
