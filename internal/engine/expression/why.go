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

// Why returns the part of an expression that makes it false: of parts that must all be true
// the first that is not, and of a choice the side that was taken. It evaluates the
// expression once more, for people who ask; its cost is not counted. The result is empty
// when there is nothing to say beyond the expression itself.
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

// falsePart follows what is false as far as one part is to blame.
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
