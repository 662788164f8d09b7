package expression

import (
	"context"
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/openapi"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Mistake is a type error of an expression for a kind. An evaluation may reach it and fail, or the
// expression tests a field that none of the kinds has.
type Mistake struct {
	Kind schema.GroupVersionKind
	At   Place
	// Text is the compiler's message.
	Text string
	// Always reports whether the evaluation fails for each object of the kind.
	Always bool
}

// harmless matches errors that only a compiler with types reports. At run time, lists of all types
// can be joined, the elements of a literal may have several types, every value can be compared with null, objects are
// maps, and the value in place of an absent one may have any type. An operand with an error has an error of its own.
var harmless = regexp.MustCompile(`found no matching overload for '_\+_' applied to '\(list\(.*\), list\(.*\)\)'` +
	`|found no matching overload for '_[=!]=_' applied to '\((null, .*|.*, null)\)'` +
	`|^expected type '.*' but found '` +
	`|found no matching overload for 'orValue' applied to '` +
	`|expression of type '[^']*\.[^']*' cannot be range of a comprehension` +
	`|found no matching overload for '@?_?in_?' applied to '\(.*, [A-Z][^,()]*\)'` +
	`|found no matching overload for '_\[_\]' applied to '\([A-Z][^,()]*, (string|dyn)\)'` +
	`|applied to '\([^']*!error!`)

// Mistakes returns the type errors of an expression for the kinds of its objects, in the order of
// kinds. A kind that is not in typed may have any fields. Mistakes leaves out parts that the
// evaluation for objects of a kind does not reach, and tests of a field that another kind has.
// others reports whether the expression applies to other kinds, too.
func Mistakes(ctx context.Context, text string, kinds []schema.GroupVersionKind, typed map[schema.GroupVersionKind]*Typed, others bool) []Mistake {
	reach, ok := NewReach(text)
	if !ok {
		return nil
	}
	var found []Mistake
	wrong := map[schema.GroupVersionKind]map[Place]bool{}
	for _, kind := range kinds {
		wrong[kind] = map[Place]bool{}
		if typed[kind] == nil {
			continue
		}
		_, issues := typed[kind].env.Compile(text)
		for _, e := range issues.Errors() {
			if at := (Place{e.Location.Line(), e.Location.Column() + 1}); !harmless.MatchString(e.Message) {
				found = append(found, Mistake{Kind: kind, At: at, Text: e.Message})
				wrong[kind][at] = true
			}
		}
	}
	// never has the places that test a field that no kind reaching them has.
	never := map[Place]bool{}
	for _, m := range found {
		never[m.At] = !others && reach.Tests(m.At) != Needs && !slices.ContainsFunc(kinds, func(k schema.GroupVersionKind) bool {
			return !wrong[k][m.At] && reach.For(ctx, k, nil)[m.At]
		})
	}
	walks := map[schema.GroupVersionKind]*walk{}
	kept := found[:0]
	for _, m := range found {
		if walks[m.Kind] == nil {
			missing := map[Place]bool{}
			for at := range wrong[m.Kind] {
				missing[at] = !never[at] && reach.Tests(at) == Asks
			}
			walks[m.Kind] = reach.walk(ctx, m.Kind, missing)
		}
		w, needs := walks[m.Kind], reach.Tests(m.At) == Needs
		m.Always = needs && w.always[m.At] && strings.HasPrefix(m.Text, "undefined field")
		if w.reached[m.At] && (needs || never[m.At]) {
			kept = append(kept, m)
		}
	}
	return kept
}

// ShapeOf returns the type of objects with a schema; name distinguishes the types of objects and of
// params. A field that an API server cannot describe, such as a quantity, may have any type: an API
// server leaves such a field out, and reports its use as an error.
func ShapeOf(s *spec.Schema, name string) *apiservercel.DeclType {
	return shapeOf(s, true).MaybeAssignTypeName(name)
}

func shapeOf(s *spec.Schema, root bool) *apiservercel.DeclType {
	if s == nil {
		return apiservercel.DynType
	}
	o := &openapi.Schema{Schema: s}
	switch {
	case o.IsXIntOrString() || o.IsXPreserveUnknownFields() || len(s.Type) != 1:
		return apiservercel.DynType
	case s.Type[0] == "array" && s.Items != nil:
		return apiservercel.NewListType(shapeOf(s.Items.Schema, false), -1)
	case s.Type[0] == "object" && s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
		return apiservercel.NewMapType(apiservercel.StringType, shapeOf(s.AdditionalProperties.Schema, false), -1)
	case s.Type[0] == "object" && len(s.Properties) == 0:
		return apiservercel.DynType
	case s.Type[0] == "object":
		fields := map[string]*apiservercel.DeclField{}
		add := func(name string, t *apiservercel.DeclType) {
			if escaped, ok := apiservercel.Escape(name); ok {
				fields[escaped] = apiservercel.NewDeclField(escaped, t, true, nil, nil)
			}
		}
		if root {
			add("apiVersion", apiservercel.StringType)
			add("kind", apiservercel.StringType)
		}
		for name := range s.Properties {
			property := s.Properties[name]
			add(name, shapeOf(&property, false))
		}
		return apiservercel.NewObjectType("object", fields)
	}
	if t := common.SchemaDeclType(o, false); t != nil {
		return t
	}
	return apiservercel.DynType
}

// Made is a value of an object's type, or a JSON patch operation, created by a mutation.
type Made struct {
	At Place
	// Type is Object, Object.spec and so on, or JSONPatch.
	Type string
	// Fields are the fields that are set, with the values of string literals.
	Fields map[string]string
	// Objects are the fields that are set to values of objects' types, or lists of them.
	Objects map[string]bool
	// Parent is the constant part of the path of a JSON patch operation before its last step.
	Parent string
	// List reports whether the value of a JSON patch operation is a list literal, and Empty whether it has no elements.
	List, Empty bool
	// Patched reports whether the value is a part of a JSON patch operation.
	Patched bool
	// Always reports whether each evaluation for objects of the kind creates the value.
	Always bool
}

// MadeFor returns the values that a mutation may create for an object of a kind.
func (r *Reach) MadeFor(ctx context.Context, kind schema.GroupVersionKind) (list []Made) {
	w := r.walk(ctx, kind, nil)
	patched := map[int64]bool{}
	ast.PreOrderVisit(r.tree.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		at := r.place(e)
		if e.Kind() != ast.StructKind || !w.reached[at] {
			return
		}
		m := Made{At: at, Type: e.AsStruct().TypeName(), Fields: map[string]string{}, Objects: map[string]bool{}, Always: w.always[at], Patched: patched[e.ID()]}
		for _, f := range e.AsStruct().Fields() {
			name, value := f.AsStructField().Name(), f.AsStructField().Value()
			m.Fields[name] = textOf(value)
			ast.PreOrderVisit(value, ast.NewExprVisitor(func(part ast.Expr) {
				m.Objects[name] = m.Objects[name] || part.Kind() == ast.StructKind
			}))
			if m.Type != "JSONPatch" {
				continue
			}
			switch {
			case name == "path":
				m.Parent = parentOf(value)
			case name == "value" && value.Kind() == ast.ListKind:
				m.List, m.Empty = true, value.AsList().Size() == 0
			}
			ast.PreOrderVisit(value, ast.NewExprVisitor(func(part ast.Expr) { patched[part.ID()] = true }))
		}
		list = append(list, m)
	}))
	return list
}

// textOf returns the value of a string literal; empty for another part.
func textOf(e ast.Expr) string {
	if e.Kind() == ast.LiteralKind {
		if literal, ok := e.AsLiteral().(types.String); ok {
			return string(literal)
		}
	}
	return ""
}

// parentOf returns the constant beginning of a path up to its last slash.
func parentOf(e ast.Expr) string {
	for e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.Add {
		e = e.AsCall().Args()[0]
	}
	text := textOf(e)
	return text[:max(0, strings.LastIndex(text, "/"))]
}

// Uses describes the use of a variable by an expression.
type Uses struct {
	// Always reports whether each evaluation for objects of the kind reads a field of the variable,
	// and fails if the variable is null.
	Always bool
	// Whole reports whether the expression uses the variable itself, such as params == null, or
	// tests whether it has a field.
	Whole bool
}

// Message reports whether a text is an expression of the policy of a validation: a string with an operator and a field of a
// variable.
func (a *Analysis) Message(text string) bool {
	message := Analyze(&Expression{key: key{text, a.e.scope, a.e.variables, Text}})
	if message.Err() != nil {
		return false
	}
	calls, fields := false, false
	ast.PreOrderVisit(message.checked.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		calls = calls || e.Kind() == ast.CallKind
		root, path, _ := chain(e)
		fields = fields || len(path) > 0 && slices.Contains([]string{"object", "oldObject", "request", "params", "variables"}, root)
	}))
	return calls && fields
}

// Uses returns the use of a variable in an evaluation for an object of a kind.
func (r *Reach) Uses(ctx context.Context, name string, kind schema.GroupVersionKind) (u Uses) {
	w := r.walk(ctx, kind, nil)
	all, read := 0, 0
	isIt := func(e ast.Expr) bool { return e.Kind() == ast.IdentKind && e.AsIdent() == name }
	ast.PostOrderVisit(r.tree.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		switch {
		case isIt(e):
			all++
		case e.Kind() == ast.SelectKind && !e.AsSelect().IsTestOnly() && isIt(e.AsSelect().Operand()),
			e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.Index && isIt(e.AsCall().Args()[0]):
			read++
			u.Always = u.Always || w.always[r.place(e)]
		}
	}))
	u.Whole = all > read
	return u
}
