package expression

import (
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/interpreter"
	"github.com/google/cel-go/parser"
	limits "k8s.io/apiserver/pkg/apis/cel"
)

// Why returns the part of an expression that makes it false: the first false operand of &&, and
// the branch that was taken of a conditional. It evaluates the expression once more; the cost
// is not counted. The result is empty when no part says more than the whole expression.
func (r *Run) Why(e *Expression) string {
	if e.Err() != nil {
		return ""
	}
	env, err := e.environment()
	if err != nil {
		return ""
	}
	checked, issues := env.Compile(e.text)
	if issues != nil {
		return ""
	}
	program, err := env.Program(checked, cel.InterruptCheckFrequency(limits.CheckFrequency), cel.EvalOptions(cel.OptTrackState))
	if err != nil {
		return ""
	}
	_, details, err := program.ContextEval(r.ctx, r)
	r.borrowed = 0
	if err != nil || details == nil || details.State() == nil {
		return ""
	}
	native := checked.NativeRep()
	part := falsePart(native.Expr(), details.State())
	if part.ID() == native.Expr().ID() {
		return ""
	}
	text, err := parser.Unparse(part, native.SourceInfo())
	if err != nil {
		return ""
	}
	return text
}

// falsePart returns the smallest part that alone makes an expression false.
func falsePart(e ast.Expr, state interpreter.EvalState) ast.Expr {
	if e.Kind() != ast.CallKind {
		return e
	}
	value := func(e ast.Expr) any {
		v, ok := state.Value(e.ID())
		if !ok {
			return nil
		}
		return v
	}
	switch args := e.AsCall().Args(); e.AsCall().FunctionName() {
	case operators.LogicalAnd:
		for _, arg := range args {
			if value(arg) == types.False {
				return falsePart(arg, state)
			}
		}
	case operators.Conditional:
		switch value(args[0]) {
		case types.True:
			return falsePart(args[1], state)
		case types.False:
			return falsePart(args[2], state)
		}
	}
	return e
}
