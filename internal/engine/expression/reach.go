package expression

import (
	"context"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	limits "k8s.io/apiserver/pkg/apis/cel"
)

// Place is a position in the text of an expression, in the compiler's form: Line and Column count
// from 1.
type Place struct{ Line, Column int }

// Tests is the effect of a missing field at a place.
type Tests uint8

const (
	// Needs means that the evaluation fails if the field is missing.
	Needs Tests = iota
	// Asks means that has() is false if the field is missing.
	Asks
	// Spares means that the value is optional.none if the field is missing, as in object.?spec.
	Spares
)

// Reach determines which parts of an expression the evaluation for objects of a kind may reach. It
// is for one goroutine.
type Reach struct {
	env  *cel.Env
	tree *ast.AST
}

// NewReach parses an expression; ok is false if the syntax is invalid.
func NewReach(text string) (r *Reach, ok bool) {
	env := environmentOf(Scope{Params: true, Authorizer: true}).StoredExpressionsEnv()
	parsed, issues := env.Parse(text)
	if issues.Err() != nil {
		return nil, false
	}
	return &Reach{env, parsed.NativeRep()}, true
}

// Tests returns the effect of a missing field at a place.
func (r *Reach) Tests(at Place) Tests {
	found := Needs
	ast.PostOrderVisit(r.tree.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		switch {
		case r.place(e) != at:
		case e.Kind() == ast.SelectKind && e.AsSelect().IsTestOnly():
			found = Asks
		case e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.OptSelect:
			found = Spares
		}
	}))
	return found
}

func (r *Reach) place(e ast.Expr) Place {
	at := r.tree.SourceInfo().GetStartLocation(e.ID())
	return Place{at.Line(), at.Column() + 1}
}

// For returns the places that the evaluation for an object of a kind may reach. The object is
// unknown except for its kind, and that has() is false at the places in missing.
func (r *Reach) For(ctx context.Context, kind schema.GroupVersionKind, missing map[Place]bool) map[Place]bool {
	return r.walk(ctx, kind, missing).reached
}

func (r *Reach) walk(ctx context.Context, kind schema.GroupVersionKind, missing map[Place]bool) *walk {
	tree := ast.Copy(r.tree)
	factory := ast.NewExprFactory()
	ast.PostOrderVisit(tree.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() == ast.SelectKind && e.AsSelect().IsTestOnly() && missing[r.place(e)] {
			e.SetKindCase(factory.NewLiteral(e.ID(), types.False))
		}
	}))
	w := &walk{r: r, reached: map[Place]bool{}, always: map[Place]bool{}, state: r.evaluate(ctx, tree, kind)}
	w.visit(tree.Expr(), false, true)
	return w
}

// evaluate returns the values of the parts that depend only on the kind; nil for none.
func (r *Reach) evaluate(ctx context.Context, tree *ast.AST, kind schema.GroupVersionKind) interpreter.EvalState {
	program, err := r.env.PlanProgram(tree, cel.EvalOptions(cel.OptPartialEval, cel.OptTrackState),
		cel.CostLimit(constantLimit), cel.InterruptCheckFrequency(limits.CheckFrequency))
	if err != nil {
		return nil
	}
	resource, _ := meta.UnsafeGuessKindToResource(kind)
	vars := map[string]any{
		"object": map[string]any{"apiVersion": kind.GroupVersion().String(), "kind": kind.Kind},
		"request": map[string]any{
			"kind":     map[string]any{"group": kind.Group, "version": kind.Version, "kind": kind.Kind},
			"resource": map[string]any{"group": resource.Group, "version": resource.Version, "resource": resource.Resource},
		},
	}
	unknown := slices.Clone(unknownWithKind)
	ast.PostOrderVisit(tree.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.SelectKind:
			s := e.AsSelect()
			if isObject(s.Operand()) && s.FieldName() != "kind" && s.FieldName() != "apiVersion" {
				unknown = append(unknown, cel.AttributePattern("object").QualString(s.FieldName()))
			}
		case ast.CallKind:
			// object['spec'], object.?spec and other accesses to the object as a whole.
			call := e.AsCall()
			for _, arg := range call.Args() {
				if isObject(arg) && call.FunctionName() != operators.Equals && call.FunctionName() != operators.NotEquals {
					unknown = append(unknown, cel.AttributePattern("object"))
				}
			}
		}
	}))
	partial, err := cel.PartialVars(vars, unknown...)
	if err != nil {
		return nil
	}
	_, details, _ := program.ContextEval(ctx, partial)
	if details == nil {
		return nil
	}
	return details.State()
}

// unknownWithKind are the unknown variables and fields of a request with a known kind, except for
// the fields of the object.
var unknownWithKind = slices.Concat(unknownFields, fields("operation"),
	hidden("oldObject", "params", "variables", "authorizer", "authorizer.requestResource", "namespaceObject"))

func isObject(e ast.Expr) bool { return e.Kind() == ast.IdentKind && e.AsIdent() == "object" }

// walk visits the parts of an expression that an evaluation may reach.
type walk struct {
	r       *Reach
	state   interpreter.EvalState
	reached map[Place]bool
	// always has the places that every evaluation reaches, and whose failure fails the evaluation.
	always map[Place]bool
}

// constantOf returns the value of a part, if it depends on the kind alone.
func (w *walk) constantOf(e ast.Expr) (value any, ok bool) {
	if w.state == nil {
		return nil, false
	}
	v, found := w.state.Value(e.ID())
	if !found || v == nil || types.IsUnknownOrError(v) {
		return nil, false
	}
	return v.Value(), true
}

// visit visits a part. The values in a loop belong to its last iteration, so they are ignored.
// always reports whether the expression fails whenever the part does.
func (w *walk) visit(e ast.Expr, loop, always bool) {
	if _, ok := w.constantOf(e); ok && !loop {
		return
	}
	// A part behind an optional part may be none.
	always = always && !behindOptional(e)
	// A conditional itself cannot fail because its results have two types.
	if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != operators.Conditional {
		place := w.r.place(e)
		w.reached[place] = true
		w.always[place] = w.always[place] || always
	}
	switch e.Kind() {
	case ast.SelectKind:
		w.visit(e.AsSelect().Operand(), loop, always)
	case ast.CallKind:
		w.call(e.AsCall(), loop, always)
	case ast.ListKind:
		for _, one := range e.AsList().Elements() {
			w.visit(one, loop, always)
		}
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			w.visit(entry.AsMapEntry().Key(), loop, always)
			w.visit(entry.AsMapEntry().Value(), loop, always)
		}
	case ast.StructKind:
		for _, field := range e.AsStruct().Fields() {
			w.visit(field.AsStructField().Value(), loop, always)
		}
	case ast.ComprehensionKind:
		c := e.AsComprehension()
		w.visit(c.IterRange(), loop, always)
		// cel.bind is a loop without an iteration.
		bind := strings.HasPrefix(c.IterVar(), "#")
		w.visit(c.AccuInit(), loop, always && !bind)
		w.visit(c.LoopCondition(), true, false)
		w.visit(c.LoopStep(), true, false)
		w.visit(c.Result(), loop || !bind, always)
	}
}

// call visits the arguments of a function.
func (w *walk) call(call ast.CallExpr, loop, always bool) {
	args := call.Args()
	switch call.FunctionName() {
	case operators.Conditional:
		if value, ok := w.constantOf(args[0]); ok && !loop {
			chosen := args[2]
			if value == true {
				chosen = args[1]
			}
			w.visit(chosen, loop, always)
			return
		}
		w.visit(args[0], loop, always)
		w.visit(args[1], loop, false)
		w.visit(args[2], loop, false)
		return
	case operators.LogicalAnd, operators.LogicalOr:
		// The other operand may determine the result.
		for i, arg := range args {
			_, known := w.constantOf(args[1-i])
			w.visit(arg, loop, always && known)
		}
		return
	}
	if call.IsMemberFunction() {
		w.visit(call.Target(), loop, always)
	}
	for _, arg := range args {
		w.visit(arg, loop, always)
	}
}

// behindOptional reports whether a part selects from an optional part, as in object.?spec.name.
func behindOptional(e ast.Expr) bool {
	switch e.Kind() {
	case ast.SelectKind:
		return behindOptional(e.AsSelect().Operand())
	case ast.CallKind:
		name := e.AsCall().FunctionName()
		return name == operators.OptSelect || name == operators.OptIndex
	}
	return false
}
