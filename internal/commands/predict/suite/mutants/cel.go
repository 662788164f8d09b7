package mutants

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	celparser "github.com/google/cel-go/parser"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
)

// edit is one change of an expression.
type edit struct {
	kind Kind
	// offset is the first changed character of the expression, text the whole expression after the change.
	offset int
	text   string
	// was and is are the part before and after the change, and notice describes a request for which the two differ.
	was, is, notice string
}

// role describes the use of an expression.
type role struct {
	// decides reports whether the value is a verdict. yes and no describe the requests for which it is true and false.
	decides bool
	yes, no string
	// strict reports whether an error of the expression rejects the request, as false does.
	strict bool
}

// editing changes an expression.
type editing struct {
	parsed  *ast.AST
	factory ast.ExprFactory
	list    []edit
}

// Parse returns the syntax tree of an expression as written; nil for a text that is not an expression.
func Parse(text string) *ast.AST {
	// Without macros, all() and has() are calls as written.
	parser, err := celparser.NewParser(celparser.EnableOptionalSyntax(true), celparser.EnableIdentEscapeSyntax(true))
	if err != nil {
		return nil
	}
	parsed, issues := parser.Parse(common.NewTextSource(text))
	if len(issues.GetErrors()) > 0 {
		return nil
	}
	return parsed
}

// editsOf returns the changes of an expression; none for a text that is not an expression.
func editsOf(text string, r role) []edit {
	parsed := Parse(text)
	if parsed == nil {
		return nil
	}
	x := &editing{parsed: parsed, factory: ast.NewExprFactory()}
	root := parsed.Expr()
	if r.decides {
		// Removing the operands of the operator at the root finds more.
		if function(root) != operators.LogicalAnd {
			x.replace(Clause, root, x.literal(true), "a request that "+r.no)
		}
		if function(root) != operators.LogicalOr {
			x.replace(Clause, root, x.literal(false), "a request that "+r.yes)
		}
	}
	x.visit(root, r.decides, r.strict)
	seen := map[string]bool{x.text(root): true}
	kept := x.list[:0]
	for _, e := range x.list {
		if !seen[e.text] && Parse(e.text) != nil {
			kept = append(kept, e)
		}
		seen[e.text] = true
	}
	return kept
}

// opposites maps functions to functions that differ for equal values, or at a boundary.
var opposites = map[string]string{
	operators.Less: operators.LessEquals, operators.LessEquals: operators.Less,
	operators.Greater: operators.GreaterEquals, operators.GreaterEquals: operators.Greater,
	"all": "exists", "exists": "all", "exists_one": "exists",
	operators.Equals: operators.NotEquals, operators.NotEquals: operators.Equals,
	"startsWith": "contains", "endsWith": "contains", "isGreaterThan": "isLessThan", "isLessThan": "isGreaterThan",
}

// visit changes a part of the expression. clause reports whether another change removes the part, or makes it true or
// false; strict, whether an error of the part rejects the request, as false does.
func (x *editing) visit(e ast.Expr, clause, strict bool) {
	if e.Kind() != ast.CallKind {
		x.parts(e)
		return
	}
	call := e.AsCall()
	args := call.Args()
	switch name := call.FunctionName(); name {
	case operators.LogicalAnd, operators.LogicalOr:
		x.operands(e, name, args, strict)
		return
	case operators.Conditional:
		condition := code(x.text(args[0]))
		x.replace(Clause, e, args[1], "a request for which "+condition+" is false")
		x.replace(Clause, e, args[2], "a request for which "+condition+" is true")
		x.visit(args[0], true, false)
		x.visit(args[1], clause, strict)
		x.visit(args[2], clause, strict)
		return
	case operators.LogicalNot:
		if !clause {
			x.replace(Operator, e, args[0], decided(x.text(e)))
		}
		x.visit(args[0], true, false)
		return
	case operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		x.relation(e, name, args)
	case operators.Equals, operators.NotEquals:
		if !clause {
			x.call(Operator, e, opposites[name], decided(x.text(e)))
		}
	case operators.In:
		if !clause {
			x.replace(Operator, e, x.factory.NewCall(e.ID(), operators.LogicalNot, x.copy(e)), decided(x.text(e)))
		}
	case "isGreaterThan", "isLessThan":
		if call.IsMemberFunction() && len(args) == 1 {
			other := x.factory.NewMemberCall(e.ID(), opposites[name], call.Target(), args...)
			x.replace(AtBoundary, e, x.factory.NewCall(e.ID(), operators.LogicalNot, other), fmt.Sprintf("a request for which %s equals %s", code(x.text(call.Target())), code(x.text(args[0]))))
		}
	case "startsWith", "endsWith":
		if call.IsMemberFunction() && len(args) == 1 {
			x.call(Operator, e, opposites[name], fmt.Sprintf("a request for which %s has %s, and not where %s wants it", code(x.text(call.Target())), code(x.text(args[0])), name))
		}
	case "all", "exists", "exists_one", "filter":
		if call.IsMemberFunction() && len(args) > 1 {
			x.loop(call, e, strict)
			return
		}
	}
	x.parts(e)
}

// parts changes the parts of an expression that is not a logical operator.
func (x *editing) parts(e ast.Expr) {
	for _, child := range Children(e) {
		x.visit(child, false, false)
	}
}

// operands removes each operand of && or ||. An operand with the same operator is split into its own operands.
func (x *editing) operands(e ast.Expr, name string, args []ast.Expr, strict bool) {
	for i, arg := range args {
		if len(args) == 2 && function(arg) != name && !(strict && name == operators.LogicalAnd && x.guards(arg, args[1-i])) {
			was, rest := code(x.text(arg)), code(x.text(args[1-i]))
			notice := fmt.Sprintf("a request for which %s is false while %s is true", was, rest)
			if name == operators.LogicalOr {
				notice = fmt.Sprintf("a request for which %s is true while %s is false", was, rest)
			}
			x.take(edit{kind: Clause, offset: x.begin(arg), was: x.text(arg), notice: notice}, e, args[1-i])
		}
	}
	for _, arg := range args {
		x.visit(arg, true, strict)
	}
}

// guards reports whether an operand of && only tests the presence of a field that the other operand needs. Without the
// test, an error rejects the requests that false rejected, so the verdicts are the same.
func (x *editing) guards(arg, other ast.Expr) bool {
	return function(arg) == "has" && strings.Contains(x.text(other), x.text(arg.AsCall().Args()[0]))
}

// relation moves the boundary of a comparison to both sides.
func (x *editing) relation(e ast.Expr, name string, args []ast.Expr) {
	operand, values := Boundary(e)
	if operand == nil {
		x.call(AtBoundary, e, opposites[name], fmt.Sprintf("a request for which %s equals %s", code(x.text(args[0])), code(x.text(args[1]))))
		return
	}
	side, value := constant(args)
	for _, at := range values {
		notice := fmt.Sprintf("a request for which %s is %d", code(x.text(operand)), at)
		if at == value {
			x.call(AtBoundary, e, opposites[name], notice)
			continue
		}
		changed := slices.Clone(args)
		changed[side] = x.factory.NewLiteral(args[side].ID(), types.Int(at))
		x.replace(AtBoundary, e, x.factory.NewCall(e.ID(), name, changed...), notice)
	}
}

// Boundary returns the values on both sides of the boundary of a comparison with an integer, and the operand that is
// compared; nil for another expression. x < 5 changes between 5 and 4, and x <= 5 between 5 and 6. Sizes are never
// negative.
func Boundary(e ast.Expr) (operand ast.Expr, values []int64) {
	name, args := function(e), e.AsCall().Args()
	side, value := constant(args)
	if side < 0 {
		return nil, nil
	}
	operand = args[1-side]
	less, equal := name == operators.Less || name == operators.LessEquals, name == operators.LessEquals || name == operators.GreaterEquals
	if side == 0 {
		less = !less
	}
	next := value + 1
	if less != equal {
		next = value - 1
	}
	for _, v := range []int64{value, next} {
		if v >= 0 || function(operand) != "size" {
			values = append(values, v)
		}
	}
	return operand, values
}

// loop changes a quantifier or a filter, and its predicate.
func (x *editing) loop(call ast.CallExpr, e ast.Expr, strict bool) {
	args := call.Args()
	predicate := args[len(args)-1]
	list, asked := code(x.text(call.Target())), code(x.text(predicate))
	switch name := call.FunctionName(); name {
	case "filter":
		x.replace(Clause, predicate, x.literal(true), fmt.Sprintf("a request in which %s has an element for which %s is false", list, asked))
		x.replace(Clause, predicate, x.literal(false), fmt.Sprintf("a request in which %s has an element for which %s is true", list, asked))
	case "exists_one":
		x.call(Quantifier, e, opposites[name], fmt.Sprintf("a request in which %s has two elements for which %s is true", list, asked))
	default:
		x.call(Quantifier, e, opposites[name], fmt.Sprintf("a request in which %s has an element for which %s is true and one for which it is false, or no element", list, asked))
		if name == "exists" {
			x.replace(Clause, predicate, x.literal(true), fmt.Sprintf("a request in which %s has elements, and %s is false for all", list, asked))
		}
	}
	x.visit(call.Target(), false, false)
	x.visit(predicate, true, strict && (call.FunctionName() == "all" || call.FunctionName() == "exists"))
}

// call changes the function of a call.
func (x *editing) call(kind Kind, e ast.Expr, name, notice string) {
	c := e.AsCall()
	if c.IsMemberFunction() {
		x.replace(kind, e, x.factory.NewMemberCall(e.ID(), name, c.Target(), c.Args()...), notice)
	} else {
		x.replace(kind, e, x.factory.NewCall(e.ID(), name, c.Args()...), notice)
	}
}

// replace replaces a part with another.
func (x *editing) replace(kind Kind, at, to ast.Expr, notice string) {
	x.take(edit{kind: kind, offset: x.begin(at), was: x.text(at), is: x.text(to), notice: notice}, at, to)
}

// take makes a change, records it and reverts it. A part that contains the changed one must refer to a copy of it.
func (x *editing) take(e edit, at, to ast.Expr) {
	before := x.copy(at)
	at.SetKindCase(to)
	e.text = x.text(x.parsed.Expr())
	at.SetKindCase(before)
	if e.text != "" {
		x.list = append(x.list, e)
	}
}

// copy returns an expression with the same parts.
func (x *editing) copy(e ast.Expr) ast.Expr {
	out := x.factory.NewUnspecifiedExpr(e.ID())
	out.SetKindCase(e)
	return out
}

func (x *editing) literal(value bool) ast.Expr { return x.factory.NewLiteral(1, types.Bool(value)) }

// text formats a part in one line; empty if it cannot be formatted.
func (x *editing) text(e ast.Expr) string {
	text, err := celparser.Unparse(e, ast.NewSourceInfo(nil))
	if err != nil {
		return ""
	}
	return text
}

// begin returns the first character of a part.
func (x *editing) begin(e ast.Expr) int { return max(Begin(x.parsed.SourceInfo(), e), 0) }

// Begin returns the first character of a part in the text of its expression; -1 if unknown.
func Begin(info *ast.SourceInfo, e ast.Expr) int {
	first := -1
	ast.PreOrderVisit(e, ast.NewExprVisitor(func(e ast.Expr) {
		r, ok := info.GetOffsetRange(e.ID())
		if !ok {
			return
		}
		start := int(r.Start)
		if name := function(e); name != "" && !strings.ContainsAny(name, "_@") && !e.AsCall().IsMemberFunction() {
			// The position of a call is the position of its parenthesis.
			start = max(start-len(name), 0)
		}
		if first < 0 || start < first {
			first = start
		}
	}))
	return first
}

// function returns the function that an expression calls; empty for other expressions.
func function(e ast.Expr) string {
	if e.Kind() != ast.CallKind {
		return ""
	}
	return e.AsCall().FunctionName()
}

// Children returns the direct parts of an expression.
func Children(e ast.Expr) (list []ast.Expr) {
	switch e.Kind() {
	case ast.CallKind:
		if c := e.AsCall(); c.IsMemberFunction() {
			list = append(list, c.Target())
		}
		list = append(list, e.AsCall().Args()...)
	case ast.SelectKind:
		list = append(list, e.AsSelect().Operand())
	case ast.ListKind:
		list = e.AsList().Elements()
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			list = append(list, entry.AsMapEntry().Key(), entry.AsMapEntry().Value())
		}
	case ast.StructKind:
		for _, field := range e.AsStruct().Fields() {
			list = append(list, field.AsStructField().Value())
		}
	}
	return list
}

// constant finds the integer operand of a comparison; side is -1 for none.
func constant(args []ast.Expr) (side int, value int64) {
	for i, arg := range args {
		if arg.Kind() == ast.LiteralKind {
			if n, ok := arg.AsLiteral().(types.Int); ok && n > -1<<53 && n < 1<<53 {
				return i, int64(n)
			}
		}
	}
	return -1, 0
}

// decided describes a request for which a negated part makes a difference.
func decided(part string) string { return "a request whose verdict depends on " + code(part) }

// most bounds the characters of a part in a message.
const most = 120

// code formats a part for a sentence.
func code(part string) string {
	return "`" + trace.Cut(strings.Join(strings.Fields(part), " "), most) + "`"
}
