package solve

import (
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/suite/mutants"
)

var factory = ast.NewExprFactory()

func call(function string, args ...ast.Expr) ast.Expr { return factory.NewCall(0, function, args...) }

func member(function string, target ast.Expr, args ...ast.Expr) ast.Expr {
	return factory.NewMemberCall(0, function, target, args...)
}

func not(e ast.Expr) ast.Expr { return call(operators.LogicalNot, e) }

func text(s string) ast.Expr { return factory.NewLiteral(0, types.String(s)) }

func number(n int) ast.Expr { return factory.NewLiteral(0, types.Int(n)) }

// function returns the function that an expression calls; empty for other expressions.
func function(e ast.Expr) string {
	if e.Kind() != ast.CallKind {
		return ""
	}
	return e.AsCall().FunctionName()
}

// literal returns the value of a literal; nil for other expressions.
func literal(e ast.Expr) any {
	if e.Kind() != ast.LiteralKind {
		return nil
	}
	return native(e.AsLiteral())
}

// ident returns the name of a variable; empty for other expressions.
func ident(e ast.Expr) string {
	if e.Kind() != ast.IdentKind {
		return ""
	}
	return e.AsIdent()
}

// macros are the functions whose first arguments are variables of the others.
var macros = []string{"all", "exists", "exists_one", "existsOne", "filter", "map", "optMap", "optFlatMap", "transformList", "transformMap", "sortBy"}

// macro returns the list or map, the variables and the other arguments of a macro; ok is false for other expressions.
func macro(e ast.Expr) (target ast.Expr, variables []string, body []ast.Expr, ok bool) {
	name := function(e)
	if !slices.Contains(macros, name) || !e.AsCall().IsMemberFunction() {
		return nil, nil, nil, false
	}
	args := e.AsCall().Args()
	for len(args) > 1 && ident(args[0]) != "" && (len(variables) == 0 || len(variables) == 1 && len(args) > 1 && name != "map" && name != "filter") {
		variables, args = append(variables, ident(args[0])), args[1:]
	}
	return e.AsCall().Target(), variables, args, len(variables) > 0
}

// rebuilt returns an expression whose parts are replaced; replace returns nil for a part that stays.
func rebuilt(e ast.Expr, replace func(ast.Expr) ast.Expr) ast.Expr {
	if other := replace(e); other != nil {
		return other
	}
	each := func(list []ast.Expr) []ast.Expr {
		out := make([]ast.Expr, len(list))
		for i, one := range list {
			out[i] = rebuilt(one, replace)
		}
		return out
	}
	switch e.Kind() {
	case ast.CallKind:
		c := e.AsCall()
		if c.IsMemberFunction() {
			return member(c.FunctionName(), rebuilt(c.Target(), replace), each(c.Args())...)
		}
		return call(c.FunctionName(), each(c.Args())...)
	case ast.SelectKind:
		return factory.NewSelect(0, rebuilt(e.AsSelect().Operand(), replace), e.AsSelect().FieldName())
	case ast.ListKind:
		return factory.NewList(0, each(e.AsList().Elements()), e.AsList().OptionalIndices())
	case ast.MapKind:
		var entries []ast.EntryExpr
		for _, entry := range e.AsMap().Entries() {
			m := entry.AsMapEntry()
			entries = append(entries, factory.NewMapEntry(0, rebuilt(m.Key(), replace), rebuilt(m.Value(), replace), m.IsOptional()))
		}
		return factory.NewMap(0, entries)
	case ast.StructKind:
		var fields []ast.EntryExpr
		for _, field := range e.AsStruct().Fields() {
			f := field.AsStructField()
			fields = append(fields, factory.NewStructField(0, f.Name(), rebuilt(f.Value(), replace), f.IsOptional()))
		}
		return factory.NewStruct(0, e.AsStruct().TypeName(), fields)
	}
	return e
}

// substituted returns an expression with a value in place of a variable.
func substituted(e ast.Expr, name string, value ast.Expr) ast.Expr {
	var replace func(ast.Expr) ast.Expr
	replace = func(e ast.Expr) ast.Expr {
		if ident(e) == name {
			return value
		}
		if target, variables, _, ok := macro(e); ok && slices.Contains(variables, name) {
			// The macro has a variable of that name itself.
			return member(function(e), rebuilt(target, replace), e.AsCall().Args()...)
		}
		return nil
	}
	return rebuilt(e, replace)
}

// Variable is a variable of a policy.
type Variable struct{ Name, Expression string }

// Parse returns an expression without variables of the policy, which are replaced with their expressions; nil for a
// text that is not an expression or is too large.
func Parse(text string, variables []Variable) ast.Expr {
	known := map[string]ast.Expr{}
	size := 0
	inline := func(text string) ast.Expr {
		parsed := mutants.Parse(text)
		if parsed == nil {
			return nil
		}
		return rebuilt(parsed.Expr(), func(e ast.Expr) ast.Expr {
			size++
			if e.Kind() == ast.SelectKind && ident(e.AsSelect().Operand()) == "variables" {
				if value := known[e.AsSelect().FieldName()]; value != nil {
					size += count(value)
					return value
				}
			}
			return nil
		})
	}
	for _, v := range variables {
		if known[v.Name] = inline(v.Expression); size > largest {
			return nil
		}
	}
	e := inline(text)
	if e == nil || size > largest {
		return nil
	}
	return e
}

// largest bounds the parts of an expression after its variables are replaced.
const largest = 20000

func count(e ast.Expr) int {
	n := 1
	for _, child := range mutants.Children(e) {
		n += count(child)
	}
	return n
}

// simpler returns an equivalent condition about the list below a filter, a map or a sum of lists; nil if there is none.
func simpler(e ast.Expr) ast.Expr {
	target, variables, body, ok := macro(e)
	if !ok || len(variables) != 1 || len(body) != 1 {
		return simplerCall(e)
	}
	name, condition := function(e), body[0]
	if name != "all" && name != "exists" {
		return nil
	}
	join := operators.LogicalAnd
	if name == "exists" {
		join = operators.LogicalOr
	}
	switch inner, names, parts, isMacro := macro(target); {
	case isMacro && function(target) == "filter" && len(names) == 1 && len(parts) == 1:
		about := substituted(condition, variables[0], factory.NewIdent(0, names[0]))
		if name == "all" {
			return member(name, inner, factory.NewIdent(0, names[0]), call(operators.LogicalOr, not(parts[0]), about))
		}
		return member(name, inner, factory.NewIdent(0, names[0]), call(operators.LogicalAnd, parts[0], about))
	case isMacro && function(target) == "map" && len(names) == 1 && len(parts) <= 2:
		about := substituted(condition, variables[0], parts[len(parts)-1])
		if len(parts) == 2 && name == "all" {
			about = call(operators.LogicalOr, not(parts[0]), about)
		} else if len(parts) == 2 {
			about = call(operators.LogicalAnd, parts[0], about)
		}
		return member(name, inner, factory.NewIdent(0, names[0]), about)
	case function(target) == operators.Add:
		args := target.AsCall().Args()
		return call(join, member(name, args[0], e.AsCall().Args()...), member(name, args[1], e.AsCall().Args()...))
	case function(target) == operators.Conditional:
		args := target.AsCall().Args()
		return call(operators.Conditional, args[0], member(name, args[1], e.AsCall().Args()...), member(name, args[2], e.AsCall().Args()...))
	case target.Kind() == ast.CallKind && target.AsCall().IsMemberFunction() && slices.Contains([]string{"distinct", "sort", "reverse"}, function(target)):
		return member(name, target.AsCall().Target(), e.AsCall().Args()...)
	case function(target) == "flatten" && target.AsCall().IsMemberFunction():
		return member(name, target.AsCall().Target(), factory.NewIdent(0, "flattened"), member(name, factory.NewIdent(0, "flattened"), e.AsCall().Args()...))
	case target.Kind() == ast.ListKind:
		var out ast.Expr
		for _, element := range target.AsList().Elements() {
			one := substituted(condition, variables[0], element)
			if out == nil {
				out = one
			} else {
				out = call(join, out, one)
			}
		}
		return out
	}
	return nil
}

// simplerCall is simpler for calls of functions on lists and optional values.
func simplerCall(e ast.Expr) ast.Expr {
	name := function(e)
	if name == "" {
		return nil
	}
	args := e.AsCall().Args()
	element := factory.NewIdent(0, "element")
	switch {
	case name == "sets.contains" && len(args) == 2:
		return member("all", args[1], element, call(operators.In, element, args[0]))
	case name == "sets.intersects" && len(args) == 2:
		return member("exists", args[0], element, call(operators.In, element, args[1]))
	case name == "sets.equivalent" && len(args) == 2:
		return call(operators.LogicalAnd, call("sets.contains", args[0], args[1]), call("sets.contains", args[1], args[0]))
	case name == operators.In && len(args) == 2:
		if inner, names, parts, ok := macro(args[1]); ok && function(args[1]) == "map" && len(names) == 1 && len(parts) == 1 {
			return member("exists", inner, factory.NewIdent(0, names[0]), call(operators.Equals, parts[0], args[0]))
		}
		if function(args[1]) == operators.Add {
			of := args[1].AsCall().Args()
			return call(operators.LogicalOr, call(operators.In, args[0], of[0]), call(operators.In, args[0], of[1]))
		}
	case name == "orValue" && e.AsCall().IsMemberFunction() && len(args) == 1:
		// x.?f.optMap(v, e).orValue(d) is e for a field that is there.
		if inner, names, parts, ok := macro(e.AsCall().Target()); ok && function(e.AsCall().Target()) == "optMap" && len(names) == 1 && len(parts) == 1 {
			return call(operators.Conditional, member("hasValue", inner), substituted(parts[0], names[0], member("value", inner)), args[0])
		}
	case len(args) == 2:
		return simplerSize(name, args)
	}
	return nil
}

// simplerSize is simpler for comparisons of the size of a filtered list with zero.
func simplerSize(operator string, args []ast.Expr) ast.Expr {
	sized := sizedBy(args[0])
	if sized == nil {
		return nil
	}
	inner, names, parts, ok := macro(sized)
	if !ok || function(sized) != "filter" || len(names) != 1 || len(parts) != 1 {
		return nil
	}
	n, isInt := literal(args[1]).(int64)
	if !isInt {
		return nil
	}
	some := member("exists", inner, factory.NewIdent(0, names[0]), parts[0])
	switch {
	case n == 0 && (operator == operators.Greater || operator == operators.NotEquals), n == 1 && operator == operators.GreaterEquals:
		return some
	case n == 0 && (operator == operators.Equals || operator == operators.LessEquals), n == 1 && operator == operators.Less:
		return not(some)
	}
	return nil
}

// sizedBy returns the value whose size an expression is; nil for other expressions.
func sizedBy(e ast.Expr) ast.Expr {
	if function(e) != "size" {
		return nil
	}
	if c := e.AsCall(); c.IsMemberFunction() {
		return c.Target()
	} else if len(c.Args()) == 1 {
		return c.Args()[0]
	}
	return nil
}
