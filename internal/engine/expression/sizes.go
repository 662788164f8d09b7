package expression

import (
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// bound is the largest size of a value in the parts of an expression that are evaluated after a comparison with its size, as
// after size(object.spec.ports) <= 64 &&.
type bound struct {
	path []string
	most uint64
	// within has the IDs of the parts.
	within map[int64]bool
}

// boundsOf returns the bounds in an expression.
func boundsOf(e ast.Expr) (list []bound) {
	add := func(comparison ast.Expr, holds bool, parts ...ast.Expr) {
		path, most, ok := atMost(comparison, holds)
		if !ok {
			return
		}
		within := map[int64]bool{}
		for _, part := range parts {
			ast.PreOrderVisit(part, ast.NewExprVisitor(func(e ast.Expr) { within[e.ID()] = true }))
		}
		list = append(list, bound{path, most, within})
	}
	ast.PreOrderVisit(e, ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.CallKind {
			return
		}
		switch name := e.AsCall().FunctionName(); name {
		case operators.LogicalAnd, operators.LogicalOr:
			parts := operands(e, name)
			for i, part := range parts {
				add(part, name == operators.LogicalAnd, parts[i+1:]...)
			}
		case operators.Conditional:
			args := e.AsCall().Args()
			add(args[0], true, args[1])
			add(args[0], false, args[2])
		}
	}))
	return list
}

// operands returns the operands of a chain of one operator in their order.
func operands(e ast.Expr, operator string) (list []ast.Expr) {
	if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != operator {
		return []ast.Expr{e}
	}
	for _, arg := range e.AsCall().Args() {
		list = append(list, operands(arg, operator)...)
	}
	return list
}

// opposite has the comparison that is true when another one is false, and mirrored the comparison with exchanged sides.
var (
	opposite = map[string]string{
		operators.Less: operators.GreaterEquals, operators.LessEquals: operators.Greater, operators.Equals: operators.NotEquals,
		operators.Greater: operators.LessEquals, operators.GreaterEquals: operators.Less, operators.NotEquals: operators.Equals,
	}
	mirrored = map[string]string{
		operators.Less: operators.Greater, operators.LessEquals: operators.GreaterEquals, operators.Equals: operators.Equals,
		operators.Greater: operators.Less, operators.GreaterEquals: operators.LessEquals,
	}
)

// atMost returns the largest size of a value when a comparison of its size with a number holds, or when it does not.
func atMost(e ast.Expr, holds bool) (path []string, most uint64, ok bool) {
	if e.Kind() != ast.CallKind {
		return nil, 0, false
	}
	name, args := e.AsCall().FunctionName(), e.AsCall().Args()
	if name == operators.LogicalNot {
		return atMost(args[0], !holds)
	}
	if opposite[name] == "" {
		return nil, 0, false
	}
	if !holds {
		name = opposite[name]
	}
	size, number := args[0], args[1]
	if size.Kind() == ast.LiteralKind {
		size, number, name = number, size, mirrored[name]
	}
	if size.Kind() != ast.CallKind || size.AsCall().FunctionName() != "size" || number.Kind() != ast.LiteralKind {
		return nil, 0, false
	}
	n, isInt := number.AsLiteral().(types.Int)
	if !isInt || n < 0 {
		return nil, 0, false
	}
	of := size.AsCall().Target()
	if !size.AsCall().IsMemberFunction() {
		of = size.AsCall().Args()[0]
	}
	root, below, _ := chain(of)
	path = append([]string{root}, below...)
	switch name {
	case operators.LessEquals, operators.Equals:
		return path, uint64(n), root != ""
	case operators.Less:
		return path, uint64(max(n-1, 0)), root != ""
	}
	return nil, 0, false
}
