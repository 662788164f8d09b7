package expression

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/parser"
)

// Why explains why an expression is false.
type Why struct {
	// Part is the part of the expression that makes it false: the first false operand of &&, and
	// the chosen branch of a conditional. It is empty if no part is more specific than the whole
	// expression.
	Part string
	// Values are the values of parts, the last evaluated part first.
	Values []Value
}

// Value is the value of a part of an expression, as text.
type Value struct{ Expression, Value string }

// Limits of the values in an explanation.
const (
	maxValues = 12
	maxValue  = 160
)

// Why explains why an expression is false. It evaluates the expression once more; the cost is not
// counted. The values come only from parts that depend on the objects of the request alone: a
// reader of the values may lack permission to read params and namespaces, or to see the permissions
// of others.
func (r *Run) Why(e *Expression) Why {
	if e.Err() != nil || !e.splits() {
		return Why{}
	}
	seen := r.look(e)
	if seen.Err != nil {
		return Why{}
	}
	last := map[int64]ref.Val{}
	for _, part := range seen.Parts {
		last[part.ID] = part.Value
	}
	why := Why{}
	root := seen.AST.Expr()
	if part := falsePart(root, last); part.ID() != root.ID() {
		if text, err := parser.Unparse(part, seen.AST.SourceInfo()); err == nil {
			why.Part = text
		}
	}
	own := &origins{run: r, own: map[int64]bool{}}
	own.of(root, nil)
	why.Values = seen.Values(func(part ast.Expr) bool { return own.own[part.ID()] })
	return why
}

// falsePart returns the smallest part that alone makes an expression false.
func falsePart(e ast.Expr, values map[int64]ref.Val) ast.Expr {
	if e.Kind() != ast.CallKind {
		return e
	}
	switch args := e.AsCall().Args(); e.AsCall().FunctionName() {
	case operators.LogicalAnd:
		for _, arg := range args {
			if values[arg.ID()] == types.False {
				return falsePart(arg, values)
			}
		}
	case operators.Conditional:
		switch values[args[0].ID()] {
		case types.True:
			return falsePart(args[1], values)
		case types.False:
			return falsePart(args[2], values)
		}
	}
	return e
}

// Values returns the values of parts, the last evaluated part first, each part once. wanted selects
// parts; nil means all.
func (s *Seen) Values(wanted func(part ast.Expr) bool) []Value {
	var list []Value
	shown := map[string]bool{}
	for _, part := range slices.Backward(s.Parts) {
		e := find(s.AST.Expr(), part.ID)
		if e == nil || e.ID() == s.AST.Expr().ID() || e.Kind() == ast.IdentKind || e.Kind() == ast.ListKind || e.Kind() == ast.LiteralKind || wanted != nil && !wanted(e) {
			continue
		}
		text, err := parser.Unparse(e, s.AST.SourceInfo())
		if err != nil || shown[text] {
			continue
		}
		shown[text] = true
		if list = append(list, Value{strings.Join(strings.Fields(text), " "), ValueText(part.Value)}); len(list) == maxValues {
			break
		}
	}
	return list
}

// find returns a part of an expression.
func find(e ast.Expr, id int64) ast.Expr {
	var found ast.Expr
	ast.PreOrderVisit(e, ast.NewExprVisitor(func(e ast.Expr) {
		if e.ID() == id && found == nil {
			found = e
		}
	}))
	return found
}

// ValueText formats a CEL value as a short text.
func ValueText(v ref.Val) string {
	if v == nil {
		return "nothing"
	}
	if types.IsError(v) {
		return fmt.Sprintf("error: %v", v.Value())
	}
	text, err := jsonOf(v.Value())
	if err != nil {
		if native, failed := v.ConvertToNative(types.JSONValueType); failed == nil {
			text, err = jsonOf(native)
		}
	}
	if err != nil {
		text = fmt.Sprint(v.Value())
	}
	if len(text) > maxValue {
		text = strings.ToValidUTF8(text[:maxValue], "") + " ..."
	}
	return text
}

// jsonOf formats a value as JSON without escaping HTML characters.
func jsonOf(v any) (string, error) {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return strings.TrimSuffix(b.String(), "\n"), err
}

// origins finds the parts of an expression whose values come from the objects of the request and
// from data that the request's trace contains anyway.
type origins struct {
	run *Run
	// own has the result for each part, and variables the result for each variable of the policy.
	// During the search of a variable its result is false: it may refer to itself.
	own       map[int64]bool
	variables map[string]bool
}

// of searches a part. bound are the names bound by surrounding loops.
func (o *origins) of(e ast.Expr, bound map[string]bool) bool {
	own := o.look(e, bound)
	o.own[e.ID()] = own
	return own
}

func (o *origins) look(e ast.Expr, bound map[string]bool) bool {
	all := func(list []ast.Expr) bool {
		own := true
		for _, one := range list {
			own = o.of(one, bound) && own
		}
		return own
	}
	switch e.Kind() {
	case ast.LiteralKind:
		return true
	case ast.IdentKind:
		name := e.AsIdent()
		if own, ok := bound[name]; ok {
			return own
		}
		return name == "object" || name == "oldObject"
	case ast.SelectKind:
		in, field := e.AsSelect().Operand(), e.AsSelect().FieldName()
		switch root, path := selected(in); {
		case root == "request" && !o.binds(bound, root):
			// The trace contains the name of the user, but not the groups.
			path = append(path, field)
			return path[0] != "userInfo" && path[0] != "options" || len(path) == 2 && path[0] == "userInfo" && field == "username"
		case root == "variables" && len(path) == 0 && !o.binds(bound, root):
			return o.variable(field)
		}
		return o.of(in, bound)
	case ast.CallKind:
		c := e.AsCall()
		own := all(c.Args())
		return (!c.IsMemberFunction() || o.of(c.Target(), bound)) && own
	case ast.ListKind:
		return all(e.AsList().Elements())
	case ast.MapKind:
		own := true
		for _, entry := range e.AsMap().Entries() {
			own = all([]ast.Expr{entry.AsMapEntry().Key(), entry.AsMapEntry().Value()}) && own
		}
		return own
	case ast.ComprehensionKind:
		c := e.AsComprehension()
		of, first := o.of(c.IterRange(), bound), o.of(c.AccuInit(), bound)
		inside := map[string]bool{}
		maps.Copy(inside, bound)
		inside[c.IterVar()], inside[c.AccuVar()] = of, first
		if c.HasIterVar2() {
			inside[c.IterVar2()] = of
		}
		condition, step, result := o.of(c.LoopCondition(), inside), o.of(c.LoopStep(), inside), o.of(c.Result(), inside)
		return of && first && condition && step && result
	}
	return false
}

func (o *origins) binds(bound map[string]bool, name string) bool { _, ok := bound[name]; return ok }

// selected returns the name at the root of a path, and the fields after it; no name if the
// expression is not a path.
func selected(e ast.Expr) (root string, path []string) {
	for e.Kind() == ast.SelectKind {
		path = append([]string{e.AsSelect().FieldName()}, path...)
		e = e.AsSelect().Operand()
	}
	if e.Kind() != ast.IdentKind {
		return "", nil
	}
	return e.AsIdent(), path
}

// variable searches a variable of the policy.
func (o *origins) variable(name string) bool {
	if own, ok := o.variables[name]; ok {
		return own
	}
	if o.variables == nil {
		o.variables = map[string]bool{}
	}
	o.variables[name] = false
	list := o.run.o.Variables
	if list == nil || list.compiled[name] == nil || list.compiled[name].err != nil || !list.compiled[name].splits() {
		return false
	}
	// The ids of parts belong to the variable, not to the expression.
	inside := &origins{run: o.run, own: map[int64]bool{}, variables: o.variables}
	o.variables[name] = inside.of(list.compiled[name].parts.ast.Expr(), nil)
	return o.variables[name]
}
