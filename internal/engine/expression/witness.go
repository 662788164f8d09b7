package expression

import (
	"context"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	limits "k8s.io/apiserver/pkg/apis/cel"
)

// Witness observes the values of the parts of expressions, for tests and for coverage. A Run with a
// Witness evaluates each expression once more, which changes no verdict and no cost. A Witness must
// be safe for concurrent use.
type Witness interface {
	// Wants reports whether the Witness observes an evaluation. ctx is the context of the request.
	Wants(ctx context.Context) bool
	// Saw receives a finished evaluation.
	Saw(ctx context.Context, e *Expression, seen *Seen)
}

// Seen is one evaluation of an expression, in parts.
type Seen struct {
	// AST is the expression. Parts refer to it.
	AST *ast.AST
	// Value is the value of the whole expression; Err is the evaluation error.
	Value ref.Val
	Err   error
	// Parts are the values of parts of the expression, in the order of evaluation. The parts are
	// the operands of logical operators, of conditionals, of loops and of calls. Each evaluation of
	// a part has an element. There are at most maxParts elements.
	Parts []Part
}

// Part is one evaluation of a part of an expression.
type Part struct {
	// ID is the id of the part in the AST.
	ID    int64
	Value ref.Val
}

// maxParts bounds the number of Parts of one evaluation.
const maxParts = 20_000

// seenName is the variable with the Seen of a Run. No expression can refer to it.
const seenName = "\x00seen"

// witnessed is an expression compiled to record the values of its parts.
type witnessed struct {
	once    sync.Once
	program cel.Program
	ast     *ast.AST
}

// show evaluates an expression once more for a witness.
func (r *Run) show(w Witness, e *Expression) {
	if !w.Wants(r.ctx) {
		return
	}
	e.compile()
	if e.err != nil {
		w.Saw(r.ctx, e, &Seen{Err: e.err})
		return
	}
	if e.splits() {
		w.Saw(r.ctx, e, r.look(e))
	}
}

// splits compiles the expression in parts, and reports whether that is possible.
func (e *Expression) splits() bool {
	e.parts.once.Do(func() { e.parts.program, e.parts.ast = e.inParts() })
	return e.parts.program != nil
}

// look evaluates an expression that splits once more, in parts, at no cost.
func (r *Run) look(e *Expression) *Seen {
	outer, borrowed := r.seen, r.borrowed
	seen := &Seen{AST: e.parts.ast}
	r.seen = seen
	seen.Value, _, seen.Err = evaluate(r.ctx, e.parts.program, r)
	r.seen, r.borrowed = outer, borrowed
	return seen
}

// inParts compiles the expression so that it records the values of its parts; nil if that is not
// possible.
func (e *Expression) inParts() (cel.Program, *ast.AST) {
	env := e.env
	if env == nil {
		var err error
		if env, err = e.environment(); err != nil {
			return nil, nil
		}
	}
	checked, issues := env.Compile(e.text)
	if issues != nil {
		return nil, nil
	}
	native := checked.NativeRep()
	wanted := Noted(native)
	program, err := env.Program(checked, cel.InterruptCheckFrequency(limits.CheckFrequency), cel.CustomDecorator(
		func(i interpreter.Interpretable) (interpreter.Interpretable, error) {
			if _, constant := i.(interpreter.InterpretableConst); constant || !wanted[i.ID()] {
				return i, nil
			}
			if _, already := i.(noted); already {
				return i, nil
			}
			return noted{i}, nil
		}))
	if err != nil {
		return nil, nil
	}
	return program, native
}

// noted is a part that records its value.
type noted struct{ interpreter.Interpretable }

func (n noted) Eval(vars interpreter.Activation) ref.Val {
	value := n.Interpretable.Eval(vars)
	if found, _ := vars.ResolveName(seenName); found != nil {
		seen := found.(*Seen)
		if len(seen.Parts) < maxParts {
			seen.Parts = append(seen.Parts, Part{n.ID(), value})
		}
	}
	return value
}

// Noted returns the ids of the parts of an expression that a Witness observes.
func Noted(a *ast.AST) map[int64]bool {
	wanted := map[int64]bool{}
	ast.PreOrderVisit(a.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.CallKind:
			c := e.AsCall()
			switch c.FunctionName() {
			case operators.Index, operators.OptIndex, operators.OptSelect:
				// The kinds of a path's parts determine how the path is followed.
				return
			}
			if c.IsMemberFunction() && c.Target().Kind() != ast.LiteralKind {
				wanted[c.Target().ID()] = true
			}
			for _, arg := range c.Args() {
				wanted[arg.ID()] = true
			}
		case ast.ComprehensionKind:
			c := e.AsComprehension()
			wanted[c.IterRange().ID()] = true
		}
	}))
	wanted[a.Expr().ID()] = true
	return wanted
}
