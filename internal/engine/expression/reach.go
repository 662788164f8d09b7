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

// Place is a place in the text of an expression, as the compiler names it: Line and Column count
// from 1.
type Place struct{ Line, Column int }

// Tests says what an expression does with the field at a place.
type Tests uint8

const (
	// Needs means that the evaluation fails when the field is missing.
	Needs Tests = iota
	// Asks means that has() is false when the field is missing.
	Asks
	// Spares means that the value is none when the field is missing, as of object.?spec.
	Spares
)

// Reach finds out which parts of an expression the evaluation for objects of a kind may reach. It
// is for one goroutine.
type Reach struct {
	env  *cel.Env
	tree *ast.AST
}

// NewReach parses an expression; ok is false if that fails.
func NewReach(text string) (r *Reach, ok bool) {
	env := environmentOf(Scope{Params: true, Authorizer: true}).StoredExpressionsEnv()
	parsed, issues := env.Parse(text)
	if issues.Err() != nil {
		return nil, false
	}
	return &Reach{env, parsed.NativeRep()}, true
}

// Tests says what the expression does with the field at a place.
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

// For returns the places that the evaluation for an object of a kind may reach. Of the object, only
// the kind is known, and that has() is false at the places in missing.
func (r *Reach) For(ctx context.Context, kind schema.GroupVersionKind, missing map[Place]bool) map[Place]bool {
	tree := ast.Copy(r.tree)
	factory := ast.NewExprFactory()
	ast.PostOrderVisit(tree.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() == ast.SelectKind && e.AsSelect().IsTestOnly() && missing[r.place(e)] {
			e.SetKindCase(factory.NewLiteral(e.ID(), types.False))
		}
	}))
	w := walk{r: r, reached: map[Place]bool{}, state: r.evaluate(ctx, tree, kind)}
	w.visit(tree.Expr(), false)
	return w.reached
}

// evaluate returns the values of the parts that depend on the kind alone; nil for none.
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
			// object['spec'], object.?spec and what else looks into the object as a whole.
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

// unknownWithKind is what is not known of a request of which the kind is known, except for the
// fields of the object.
var unknownWithKind = func() (list []*cel.AttributePatternType) {
	for _, name := range []string{"oldObject", "params", "variables", "authorizer", "authorizer.requestResource", "namespaceObject"} {
		list = append(list, cel.AttributePattern(name))
	}
	for _, name := range []string{
		"requestKind", "requestResource", "subResource", "requestSubResource", "name", "namespace", "operation", "userInfo", "dryRun", "options",
	} {
		list = append(list, field(name))
	}
	return list
}()

func isObject(e ast.Expr) bool { return e.Kind() == ast.IdentKind && e.AsIdent() == "object" }

// walk goes through the parts of an expression that an evaluation may reach.
type walk struct {
	r       *Reach
	state   interpreter.EvalState
	reached map[Place]bool
}

// known returns the value of a part, if it depends on the kind alone.
func (w *walk) known(e ast.Expr) (value any, ok bool) {
	if w.state == nil {
		return nil, false
	}
	v, found := w.state.Value(e.ID())
	if !found || v == nil || types.IsUnknownOrError(v) {
		return nil, false
	}
	return v.Value(), true
}

// visit goes through a part. The values in a loop are those of its last round, so that they say
// nothing.
func (w *walk) visit(e ast.Expr, loop bool) {
	if _, ok := w.known(e); ok && !loop {
		return
	}
	// A conditional itself cannot fail because its results have two types.
	if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != operators.Conditional {
		w.reached[w.r.place(e)] = true
	}
	switch e.Kind() {
	case ast.SelectKind:
		w.visit(e.AsSelect().Operand(), loop)
	case ast.CallKind:
		call := e.AsCall()
		args := call.Args()
		if call.FunctionName() == operators.Conditional && !loop {
			if value, ok := w.known(args[0]); ok {
				chosen := args[2]
				if value == true {
					chosen = args[1]
				}
				w.visit(chosen, loop)
				return
			}
		}
		if call.IsMemberFunction() {
			w.visit(call.Target(), loop)
		}
		for _, arg := range args {
			w.visit(arg, loop)
		}
	case ast.ListKind:
		for _, one := range e.AsList().Elements() {
			w.visit(one, loop)
		}
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			w.visit(entry.AsMapEntry().Key(), loop)
			w.visit(entry.AsMapEntry().Value(), loop)
		}
	case ast.StructKind:
		for _, field := range e.AsStruct().Fields() {
			w.visit(field.AsStructField().Value(), loop)
		}
	case ast.ComprehensionKind:
		c := e.AsComprehension()
		w.visit(c.IterRange(), loop)
		// cel.bind is a loop without a round.
		bind := strings.HasPrefix(c.IterVar(), "#")
		w.visit(c.AccuInit(), loop)
		w.visit(c.LoopCondition(), true)
		w.visit(c.LoopStep(), true)
		w.visit(c.Result(), loop || !bind)
	}
}
