package expression

import (
	"maps"
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// Element is the step of a path to the elements of a list, and to the values of unknown keys.
const Element = "*"

// Reads returns the fields that the expression and the variables that it uses read: paths of names
// that begin with the variable, such as object.
func (t *Trials) Reads() [][]string {
	r := &reads{t: t}
	r.visit(t.tree.Expr(), map[string][][]string{})
	return r.list
}

// Values returns the fields whose values the expression reads: as Reads, without the fields that it only requires to be
// present, by has() or in.
func (t *Trials) Values() [][]string {
	r := &reads{t: t, values: true}
	r.visit(t.tree.Expr(), map[string][][]string{})
	return r.list
}

// Arguments returns the fields that the expression gives to a function of one argument, as in
// Reads.
func (t *Trials) Arguments(function string) [][]string {
	r := &reads{t: t, function: function}
	r.visit(t.tree.Expr(), map[string][][]string{})
	return r.list
}

// Comparison is a comparison of a field with a constant text.
type Comparison struct {
	At Place
	// Paths are the paths that the field may have, as in Reads.
	Paths [][]string
	Text  string
}

// Comparisons returns the comparisons of fields with constant texts by ==, != and in. It leaves out fields for which the
// expression has a default value.
func (t *Trials) Comparisons() []Comparison {
	r := &reads{t: t}
	r.visit(t.tree.Expr(), map[string][][]string{})
	return r.comparisons
}

// reads collects paths. loops are the paths of the variables of loops.
type reads struct {
	t        *Trials
	function string
	// values leaves out fields that are required to be present.
	values      bool
	list        [][]string
	comparisons []Comparison
}

func (r *reads) add(paths [][]string) {
	for _, p := range paths {
		if !slices.ContainsFunc(r.list, func(known []string) bool { return slices.Equal(known, p) }) {
			r.list = append(r.list, p)
		}
	}
}

// visit collects the paths of a part.
func (r *reads) visit(e ast.Expr, loops map[string][][]string) {
	if tested := presence(e); r.values && tested != nil {
		r.within(tested, loops)
		if e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.In {
			r.visit(e.AsCall().Args()[0], loops)
		}
		return
	}
	if paths := r.resolve(e, loops); paths != nil && r.function == "" {
		r.add(paths)
	}
	switch e.Kind() {
	case ast.SelectKind:
		r.within(e.AsSelect().Operand(), loops)
	case ast.CallKind:
		call := e.AsCall()
		r.compare(call, loops)
		if call.FunctionName() == r.function && r.function != "" && len(call.Args()) == 1 {
			r.add(r.resolve(call.Args()[0], loops))
		}
		if call.IsMemberFunction() {
			r.visit(call.Target(), loops)
		}
		if r.values && call.FunctionName() == operators.LogicalNot {
			negated := &reads{t: r.t}
			negated.visit(call.Args()[0], loops)
			r.add(negated.list)
			return
		}
		for i, arg := range call.Args() {
			if name := call.FunctionName(); i == 0 && (name == operators.Index || name == operators.OptIndex || name == operators.OptSelect) {
				r.within(arg, loops)
				continue
			}
			r.visit(arg, loops)
		}
	case ast.ListKind:
		for _, one := range e.AsList().Elements() {
			r.visit(one, loops)
		}
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			r.visit(entry.AsMapEntry().Key(), loops)
			r.visit(entry.AsMapEntry().Value(), loops)
		}
	case ast.StructKind:
		for _, field := range e.AsStruct().Fields() {
			r.visit(field.AsStructField().Value(), loops)
		}
	case ast.ComprehensionKind:
		c := e.AsComprehension()
		r.within(c.IterRange(), loops)
		r.visit(c.AccuInit(), loops)
		inner := r.inner(c, loops)
		r.visit(c.LoopStep(), inner)
		r.visit(c.Result(), inner)
	}
}

// compare collects the comparisons that a call makes.
func (r *reads) compare(call ast.CallExpr, loops map[string][][]string) {
	name := call.FunctionName()
	if name != operators.Equals && name != operators.NotEquals && name != operators.In {
		return
	}
	field, other := call.Args()[0], call.Args()[1]
	if textOf(field) != "" {
		field, other = other, field
	}
	texts := []ast.Expr{other}
	if other.Kind() == ast.ListKind {
		texts = other.AsList().Elements()
	}
	if !r.t.isField(field) {
		return
	}
	at := r.t.tree.SourceInfo().GetStartLocation(field.ID())
	for _, one := range texts {
		if text := textOf(one); text != "" {
			r.comparisons = append(r.comparisons, Comparison{Place{at.Line(), at.Column() + 1}, r.resolve(field, loops), text})
		}
	}
}

// isField reports whether a part has the value of a field and no other.
func (t *Trials) isField(e ast.Expr) bool {
	switch e.Kind() {
	case ast.IdentKind:
		return true
	case ast.SelectKind:
		s := e.AsSelect()
		if of := s.Operand(); of.Kind() == ast.IdentKind && of.AsIdent() == "variables" {
			v := t.Named(s.FieldName())
			return v != nil && v.isField(v.tree.Expr())
		}
		return !s.IsTestOnly() && t.isField(s.Operand())
	case ast.CallKind:
		call := e.AsCall()
		return call.FunctionName() == operators.Index && t.isField(call.Args()[0])
	}
	return false
}

// presence returns the part whose field, key or value an expression requires to be present; nil if it is no such test.
func presence(e ast.Expr) ast.Expr {
	switch e.Kind() {
	case ast.SelectKind:
		if s := e.AsSelect(); s.IsTestOnly() {
			return s.Operand()
		}
	case ast.CallKind:
		switch call := e.AsCall(); call.FunctionName() {
		case operators.In:
			if key := call.Args()[0].Kind(); key == ast.LiteralKind || key == ast.IdentKind {
				return call.Args()[1]
			}
		case "hasValue":
			return call.Target()
		}
	}
	return nil
}

// within visits the parts of a part whose own path is the beginning of another path.
func (r *reads) within(e ast.Expr, loops map[string][][]string) {
	if r.resolve(e, loops) == nil || e.Kind() == ast.ComprehensionKind {
		r.visit(e, loops)
		return
	}
	switch e.Kind() {
	case ast.SelectKind:
		r.within(e.AsSelect().Operand(), loops)
	case ast.CallKind:
		call := e.AsCall()
		if call.IsMemberFunction() {
			r.within(call.Target(), loops)
		}
		for _, arg := range call.Args() {
			r.within(arg, loops)
		}
	}
}

// inner returns the variables in a loop.
func (r *reads) inner(c ast.ComprehensionExpr, loops map[string][][]string) map[string][][]string {
	inner := maps.Clone(loops)
	delete(inner, c.IterVar())
	if strings.HasPrefix(c.IterVar(), "#") {
		inner[c.AccuVar()] = r.resolve(c.AccuInit(), loops)
		return inner
	}
	name := c.IterVar()
	if c.HasIterVar2() {
		name = c.IterVar2()
	}
	inner[name] = below(r.resolve(c.IterRange(), loops), Element)
	return inner
}

func below(paths [][]string, step string) (list [][]string) {
	for _, p := range paths {
		list = append(list, append(slices.Clip(p), step))
	}
	return list
}

// resolve returns the paths that the value of a part may have; nil if it is no field.
func (r *reads) resolve(e ast.Expr, loops map[string][][]string) [][]string {
	switch e.Kind() {
	case ast.IdentKind:
		if of, ok := loops[e.AsIdent()]; ok {
			return of
		}
		return [][]string{{e.AsIdent()}}
	case ast.SelectKind:
		s := e.AsSelect()
		if of := s.Operand(); of.Kind() == ast.IdentKind && of.AsIdent() == "variables" {
			if v := r.t.Named(s.FieldName()); v != nil {
				return (&reads{t: v}).resolve(v.tree.Expr(), map[string][][]string{})
			}
			return nil
		}
		return below(r.resolve(s.Operand(), loops), s.FieldName())
	case ast.CallKind:
		call := e.AsCall()
		args := call.Args()
		switch call.FunctionName() {
		case operators.Index, operators.OptIndex, operators.OptSelect:
			step := Element
			if args[1].Kind() == ast.LiteralKind {
				if key, ok := args[1].AsLiteral().(types.String); ok {
					step = string(key)
				}
			}
			return below(r.resolve(args[0], loops), step)
		case "orValue", "or", "value":
			return r.resolve(call.Target(), loops)
		case operators.Add:
			return append(r.resolve(args[0], loops), r.resolve(args[1], loops)...)
		case operators.Conditional:
			return append(r.resolve(args[1], loops), r.resolve(args[2], loops)...)
		}
	case ast.ComprehensionKind:
		c := e.AsComprehension()
		if strings.HasPrefix(c.IterVar(), "#") {
			return r.resolve(c.Result(), r.inner(c, loops))
		}
		// The result of a filter has the elements of its list.
		if step := c.LoopStep(); c.AccuInit().Kind() == ast.ListKind && step.Kind() == ast.CallKind && step.AsCall().FunctionName() == operators.Conditional {
			return r.resolve(c.IterRange(), loops)
		}
	}
	return nil
}
