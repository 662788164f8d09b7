package solve

import (
	"context"
	"encoding/json"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	celparser "github.com/google/cel-go/parser"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/suite/mutants"
	"github.com/gatehouse-dev/gatehouse/internal/engine/expression"
)

// Goal is an expression and its wanted value.
type Goal struct {
	Expression ast.Expr
	Want       bool
}

// Solver finds requests. It is for one goroutine.
type Solver struct {
	// Enums has values that the API allows in fields without an enum in their schema, by Field.
	Enums    map[string][]any
	compiled map[string]*expression.Expression
	texts    map[ast.Expr]string
	// constants are the literals of the expressions of the policy.
	constants []any
}

// New returns a solver for the expressions of a policy.
func New(all ...ast.Expr) *Solver {
	s := &Solver{Enums: map[string][]any{}, compiled: map[string]*expression.Expression{}, texts: map[ast.Expr]string{}}
	for _, e := range all {
		s.collect(e)
	}
	return s
}

func (s *Solver) collect(e ast.Expr) {
	switch v := literal(e).(type) {
	case string, int64:
		if !slices.Contains(s.constants, v) {
			s.constants = append(s.constants, v)
		}
	}
	for _, child := range mutants.Children(e) {
		s.collect(child)
	}
}

// authority grants everything to members of system:masters, and nothing to others.
type authority struct{}

func (authority) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if u := a.GetUser(); u != nil && slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// Limits of a search.
const (
	// fuel bounds the evaluations of a search.
	fuel = 4000
	// tries bounds the found requests of a search.
	tries   = 24
	detours = 60
)

// Each calls found with requests for which all goals have their values, starting from a request, until it returns true.
// The result is false if it never did. If loose is set, goals that hold at the start are not kept.
func (s *Solver) Each(ctx context.Context, from *State, goals []Goal, loose bool, found func(*State) bool) bool {
	x := &search{Solver: s, ctx: ctx, fuel: fuel, tries: tries, detours: detours, loose: loose}
	seen := map[string]bool{}
	var all func(st *State, i int) bool
	all = func(st *State, i int) bool {
		if i < len(goals) {
			return x.want(goals[i].Expression, goals[i].Want, st, func(st *State) bool { return all(st, i+1) })
		}
		key, err := json.Marshal([]any{sent(st, Object), sent(st, OldObject), sent(st, Params), st.User, st.Labels, st.Namespace})
		if err != nil || seen[string(key)] {
			return false
		}
		seen[string(key)] = true
		if !loose && slices.ContainsFunc(goals, func(g Goal) bool { return !x.is(g.Expression, g.Want, st) }) {
			return false
		}
		x.tries--
		if found(st) {
			x.done = true
		}
		return x.done || x.tries <= 0
	}
	all(from, 0)
	return x.done
}

func sent(st *State, root string) any {
	if d := st.Documents[root]; d != nil {
		return d.Sent
	}
	return nil
}

// Holds reports whether an expression has a value for a request. known is false if its evaluation fails.
func (s *Solver) Holds(ctx context.Context, e ast.Expr, st *State) (value, known bool) {
	x := &search{Solver: s, ctx: ctx, fuel: fuel}
	v, ok := x.eval(e, st)
	value, isBool := v.(bool)
	return value, ok && isBool
}

// search is one search.
type search struct {
	*Solver
	ctx         context.Context
	fuel, tries int
	// detours bounds the parts that have the wanted value already, and are changed nevertheless.
	detours     int
	loose, done bool
}

// next continues a search with a request. It returns true to end the search.
type next func(*State) bool

func (x *search) spent() bool { return x.fuel <= 0 || x.done || x.ctx.Err() != nil }

// text formats an expression.
func (x *search) text(e ast.Expr) string {
	t, ok := x.texts[e]
	if !ok {
		t, _ = celparser.Unparse(e, ast.NewSourceInfo(nil))
		x.texts[e] = t
	}
	return t
}

// eval evaluates an expression. ok is false if the evaluation fails.
func (x *search) eval(e ast.Expr, st *State) (value any, ok bool) {
	if e.Kind() == ast.LiteralKind {
		return native(e.AsLiteral()), true
	}
	x.fuel--
	t := x.text(e)
	compiled := x.compiled[t]
	if compiled == nil {
		compiled = expression.New(t, expression.Scope{Params: true, Authorizer: true}, nil, expression.Anything)
		x.compiled[t] = compiled
	}
	if compiled.Err() != nil {
		return nil, false
	}
	if st.run == nil {
		var params runtime.Object
		if d := st.Documents[Params]; d != nil && d.Seen != nil {
			params = &unstructured.Unstructured{Object: d.Seen}
		}
		in := st.input()
		st.run = expression.NewValues(in).NewRun(x.ctx, expression.Options{Resource: st.Resource, Namespace: true, Authorizer: true, Params: params, Budget: math.MaxUint64})
	}
	o, err := st.run.Eval(compiled)
	if err != nil || o.Err != nil || o.Value == nil {
		return nil, false
	}
	return native(o.Value), true
}

// is reports whether a condition has a value.
func (x *search) is(e ast.Expr, truth bool, st *State) bool {
	v, ok := x.eval(e, st)
	return ok && v == truth
}

// native returns a value as in JSON; values without a form in JSON stay as they are.
func native(v ref.Val) any {
	switch v := v.(type) {
	case types.Bool:
		return bool(v)
	case types.Int:
		return int64(v)
	case types.Uint:
		return int64(v)
	case types.Double:
		return float64(v)
	case types.String:
		return string(v)
	case types.Null:
		return nil
	case *types.Optional:
		if !v.HasValue() {
			return nil
		}
		return native(v.GetValue())
	case traits.Mapper:
		out := map[string]any{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			key := it.Next()
			if name, ok := native(key).(string); ok {
				out[name] = native(v.Get(key))
			}
		}
		return out
	case traits.Lister:
		out := []any{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			out = append(out, native(it.Next()))
		}
		return out
	}
	return v
}

// place returns the field that an expression reads; ok is false for other expressions.
func (x *search) place(e ast.Expr, st *State) (p place, ok bool) {
	switch e.Kind() {
	case ast.IdentKind:
		name := e.AsIdent()
		return place{root: name}, slices.Contains([]string{Object, OldObject, Params, request, namespace}, name)
	case ast.SelectKind:
		if p, ok = x.place(e.AsSelect().Operand(), st); ok {
			p = x.alias(p.child(e.AsSelect().FieldName()), st)
		}
		return p, ok
	case ast.CallKind:
	default:
		return p, false
	}
	c := e.AsCall()
	args := c.Args()
	switch name := c.FunctionName(); {
	case name == operators.Index || name == operators.OptIndex || name == operators.OptSelect:
		key, known := x.eval(args[1], st)
		if !known {
			return p, false
		}
		of := args[0]
		if n, isInt := key.(int64); isInt && function(of) == "filter" {
			var element ast.Expr
			if element = x.filtered(of, int(n), st); element == nil {
				return p, false
			}
			return x.place(element, st)
		}
		if p, ok = x.place(of, st); !ok {
			return p, false
		}
		switch key := key.(type) {
		case string:
			return x.alias(p.child(key), st), true
		case int64:
			return p.child(int(key)), true
		}
		return p, false
	case c.IsMemberFunction() && (name == "orValue" || name == "or" || name == "value"):
		return x.place(c.Target(), st)
	case name == "dyn" || name == "optional.of" || name == "optional.ofNonZeroValue":
		return x.place(args[0], st)
	case name == operators.Conditional:
		if x.is(args[0], true, st) {
			return x.place(args[1], st)
		}
		return x.place(args[2], st)
	}
	return p, false
}

// alias returns the field of the object for a variable of the request with the same value.
func (x *search) alias(p place, st *State) place {
	root := Object
	if d := st.Documents[Object]; d == nil || d.Sent == nil {
		root = OldObject
	}
	switch {
	case p.root == request && len(p.path) == 1 && slices.Contains(identity, step(p.path, 0)):
		return place{root, []any{"metadata", p.path[0]}}
	case p.root == namespace && len(p.path) == 2 && step(p.path, 0) == "metadata" && step(p.path, 1) == "name":
		return place{root, []any{"metadata", "namespace"}}
	}
	return p
}

// filtered returns the element of a filtered list.
func (x *search) filtered(e ast.Expr, n int, st *State) ast.Expr {
	list, variables, body, ok := macro(e)
	if !ok || len(body) != 1 {
		return nil
	}
	value, _ := x.eval(list, st)
	elements, _ := value.([]any)
	for i := range elements {
		element := call(operators.Index, list, number(i))
		if !x.is(substituted(body[0], variables[0], element), true, st) {
			continue
		}
		if n--; n < 0 {
			return element
		}
	}
	return nil
}

// want continues with requests for which a condition has a value.
func (x *search) want(e ast.Expr, truth bool, st *State, then next) bool {
	if x.spent() {
		return true
	}
	if x.is(e, truth, st) {
		if then(st) {
			return true
		}
		// Another way to the same value is rarely needed: the number of combinations would be exponential.
		if x.detours--; x.detours < 0 {
			return false
		}
	}
	if x.spent() {
		return true
	}
	// checked continues only if the change has the wanted effect.
	checked := func(st *State) bool { return x.is(e, truth, st) && then(st) }
	if other := simpler(e); other != nil {
		return x.want(other, truth, st, checked)
	}
	if function(e) != "" {
		c := e.AsCall()
		args := c.Args()
		switch name := c.FunctionName(); name {
		case operators.LogicalNot:
			return x.want(args[0], !truth, st, then)
		case operators.LogicalAnd, operators.LogicalOr:
			return x.junction(name == operators.LogicalAnd, args, truth, st, checked)
		case operators.Conditional:
			return x.want(args[0], true, st, func(st *State) bool { return x.want(args[1], truth, st, checked) }) ||
				x.want(args[0], false, st, func(st *State) bool { return x.want(args[2], truth, st, checked) })
		case "has":
			return x.present(args[0], truth, st, checked)
		case "hasValue":
			if c.IsMemberFunction() {
				return x.present(c.Target(), truth, st, checked)
			}
		case "all", "exists", "exists_one", "existsOne":
			if _, _, _, ok := macro(e); ok {
				return x.quantified(e, truth, st, checked) || x.perturb(e, st, checked)
			}
		case operators.Equals, operators.NotEquals, operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
			return x.relation(relationOf(name, truth), args[0], args[1], st, checked) || x.perturb(e, st, checked)
		case operators.In:
			return x.contained(args[0], args[1], truth, st, checked) || x.perturb(e, st, checked)
		case "startsWith", "endsWith", "contains", "matches":
			return x.searched(e, truth, st, checked) || x.perturb(e, st, checked)
		case "isLessThan", "isGreaterThan":
			if c.IsMemberFunction() && len(args) == 1 {
				return x.ordered(c.Target(), args[0], st, checked) || x.perturb(e, st, checked)
			}
		}
	}
	if p, ok := x.place(e, st); ok && x.try(p, []any{truth}, st, checked) {
		return true
	}
	return x.perturb(e, st, checked)
}

// junction is want for && and ||.
func (x *search) junction(and bool, args []ast.Expr, truth bool, st *State, then next) bool {
	if truth == and {
		// Both operands have the same value.
		if x.want(args[0], truth, st, func(st *State) bool { return x.want(args[1], truth, st, then) }) {
			return true
		}
		if _, known := x.eval(args[0], st); known {
			return false
		}
		return x.want(args[1], truth, st, func(st *State) bool { return x.want(args[0], truth, st, then) })
	}
	return x.want(args[0], truth, st, then) ||
		x.want(args[0], !truth, st, func(st *State) bool { return x.want(args[1], truth, st, then) }) ||
		x.want(args[1], truth, st, then)
}

// try continues with requests whose field has one of some values.
func (x *search) try(p place, values []any, st *State, then next) bool {
	if allowed := x.Enums[p.field()]; allowed != nil {
		values = slices.DeleteFunc(slices.Clone(values), func(v any) bool { return !slices.ContainsFunc(allowed, func(a any) bool { return a == v }) })
		values = append(values, allowed...)
	}
	for _, v := range values {
		if x.spent() {
			return true
		}
		if out := st.set(p, v); out != nil && then(out) {
			return true
		}
	}
	return false
}

// field returns the name of a field without indexes and keys of maps.
func (p place) field() string {
	var b strings.Builder
	b.WriteString(p.root)
	for _, s := range p.path {
		if name, ok := s.(string); ok {
			b.WriteString("." + name)
		} else {
			b.WriteString("[]")
		}
	}
	return b.String()
}

// present is want for has() and hasValue().
func (x *search) present(e ast.Expr, truth bool, st *State, then next) bool {
	p, ok := x.place(e, st)
	if !ok {
		return false
	}
	if truth {
		return x.try(p, x.samples(p, st), st, then)
	}
	for at := p; len(at.path) > 0; at.path = at.path[:len(at.path)-1] {
		if out := st.remove(at); out != nil && then(out) {
			return true
		}
	}
	return false
}

// samples returns values that a field may have.
func (x *search) samples(p place, st *State) []any {
	d := st.Documents[p.root]
	if d == nil || d.Schema == nil {
		// Users have extra fields with values only.
		return append([]any{"test", true, int64(1), []any{"test"}, map[string]any{"other": []any{"other"}}, map[string]any{}, []any{}}, x.constants...)
	}
	s := schemaAt(d.Schema, p.path)
	if s == nil {
		return nil
	}
	name := ""
	for _, at := range p.path {
		if text, ok := at.(string); ok {
			name = text
		}
	}
	list := []any{sample(s, name, 0)}
	list = append(list, s.Enum...)
	if len(s.Type) == 1 && s.Type[0] == "boolean" {
		list = append(list, false)
	}
	for _, c := range x.constants {
		if fits(c, s) {
			list = append(list, c)
		}
	}
	return list
}

// relationOf returns the comparison that holds where another has a value.
func relationOf(operator string, truth bool) string {
	if truth {
		return operator
	}
	return map[string]string{
		operators.Equals: operators.NotEquals, operators.NotEquals: operators.Equals, operators.Less: operators.GreaterEquals,
		operators.LessEquals: operators.Greater, operators.Greater: operators.LessEquals, operators.GreaterEquals: operators.Less,
	}[operator]
}

// flipped returns the comparison with exchanged operands.
func flipped(operator string) string {
	switch operator {
	case operators.Less:
		return operators.Greater
	case operators.LessEquals:
		return operators.GreaterEquals
	case operators.Greater:
		return operators.Less
	case operators.GreaterEquals:
		return operators.LessEquals
	}
	return operator
}

// relation is want for comparisons.
func (x *search) relation(operator string, a, b ast.Expr, st *State, then next) bool {
	for _, side := range []ast.Expr{a, b} {
		if function(side) == "compareTo" && side.AsCall().IsMemberFunction() {
			return x.ordered(side.AsCall().Target(), side.AsCall().Args()[0], st, then)
		}
	}
	if operator == operators.NotEquals && (ident(a) == Object || ident(a) == OldObject) {
		// Any change makes whole objects differ.
		if x.try(place{ident(a), []any{"metadata", "labels", "changed"}}, []any{"true"}, st, then) {
			return true
		}
	}
	va, known := x.eval(a, st)
	vb, other := x.eval(b, st)
	if other {
		for _, v := range compared(operator, vb) {
			if x.assign(a, v, st, then) {
				return true
			}
		}
	}
	if known {
		for _, v := range compared(flipped(operator), va) {
			if x.assign(b, v, st, then) {
				return true
			}
		}
	}
	if known && other {
		return false
	}
	// A missing operand gets some value first.
	missing, rest := a, b
	if known {
		missing, rest = b, a
	}
	p, ok := x.place(missing, st)
	if !ok {
		return false
	}
	return x.try(p, x.samples(p, st), st, func(st *State) bool {
		if then(st) {
			return true
		}
		v, ok := x.eval(missing, st)
		if !ok {
			return false
		}
		for _, v := range compared(operator, v) {
			if x.assign(rest, v, st, then) {
				return true
			}
		}
		return false
	})
}

// compared returns values a for which "a operator v" holds.
func compared(operator string, v any) []any {
	switch operator {
	case operators.Equals:
		return []any{v}
	case operators.NotEquals:
		return differentFrom(v)
	}
	sign := int64(1)
	if operator == operators.Less || operator == operators.LessEquals {
		sign = -1
	}
	equal := operator == operators.LessEquals || operator == operators.GreaterEquals
	var list []any
	switch v := v.(type) {
	case int64:
		if equal {
			list = append(list, v)
		}
		list = append(list, v+sign, v+10*sign)
		if sign < 0 && v > 0 {
			list = append(list, int64(0), int64(1))
		}
	case float64:
		if equal {
			list = append(list, v)
		}
		list = append(list, v+float64(sign), v*2, v/2)
	case string:
		list = []any{v, v + "x", ""}
	}
	return list
}

// ordered is want for values whose order is known to their functions only, such as quantities and versions.
func (x *search) ordered(a, b ast.Expr, st *State, then next) bool {
	inside := func(e ast.Expr) ast.Expr {
		for function(e) == "quantity" || function(e) == "semver" || function(e) == "timestamp" || function(e) == "duration" {
			e = e.AsCall().Args()[0]
		}
		return e
	}
	a, b = inside(a), inside(b)
	for _, pair := range [][2]ast.Expr{{a, b}, {b, a}} {
		v, ok := x.eval(pair[1], st)
		if !ok {
			v = "100Mi"
		}
		values := append(quantities(v), v, "0.0.1", "99.0.0", "2000-01-01T00:00:00Z", "2100-01-01T00:00:00Z", "1s", "1000h")
		for _, v := range values {
			if x.assign(pair[0], v, st, then) {
				return true
			}
		}
	}
	return false
}

// contained is want for the operator in.
func (x *search) contained(a, b ast.Expr, truth bool, st *State, then next) bool {
	va, known := x.eval(a, st)
	vb, other := x.eval(b, st)
	p, isPlace := x.place(b, st)
	if truth {
		if list, ok := vb.([]any); ok && other {
			for _, v := range list {
				if x.assign(a, v, st, then) {
					return true
				}
			}
		}
		if m, ok := vb.(map[string]any); ok && other {
			for key := range m {
				if x.assign(a, key, st, then) {
					return true
				}
			}
		}
		if !isPlace || !known {
			return !known && x.assignSample(a, st, func(st *State) bool { return x.contained(a, b, truth, st, then) })
		}
		if _, isList := vb.([]any); isList || !other {
			if out, _ := st.add(p, va); out != nil && then(out) {
				return true
			}
		}
		key, isText := va.(string)
		if isText && x.try(p.child(key), x.samples(p.child(key), st), st, then) {
			return true
		}
		// A map of quantities has the names of resources only.
		return x.assign(a, "cpu", st, func(st *State) bool { return then(st) || x.try(p.child("cpu"), []any{"1"}, st, then) })
	}
	values := append([]any{"other", "x", int64(1), int64(0)}, x.constants...)
	if at, ok := x.place(a, st); ok {
		values = append(x.samples(at, st), values...)
	}
	if known {
		values = append(differentFrom(va), values...)
	}
	for _, v := range values {
		if x.assign(a, v, st, then) {
			return true
		}
	}
	if isPlace && !other && x.try(p, x.samples(p, st), st, then) {
		return true
	}
	if !isPlace || !known {
		return false
	}
	switch v := vb.(type) {
	case map[string]any:
		key, _ := va.(string)
		out := st.remove(p.child(key))
		return out != nil && then(out)
	case []any:
		kept := slices.DeleteFunc(slices.Clone(v), func(e any) bool { return reflect.DeepEqual(e, va) })
		return x.try(p, []any{kept}, st, then)
	}
	return false
}

// assignSample continues with some value of an expression that has none.
func (x *search) assignSample(e ast.Expr, st *State, then next) bool {
	p, ok := x.place(e, st)
	return ok && x.try(p, x.samples(p, st), st, then)
}

// searched is want for functions that look for a text in another.
func (x *search) searched(e ast.Expr, truth bool, st *State, then next) bool {
	c := e.AsCall()
	args := c.Args()
	if c.IsMemberFunction() {
		args = append([]ast.Expr{c.Target()}, args...)
	}
	if len(args) != 2 {
		return false
	}
	value, _ := x.eval(args[0], st)
	now, _ := value.(string)
	value, ok := x.eval(args[1], st)
	want, isText := value.(string)
	if !ok || !isText {
		return x.assignSample(args[1], st, func(st *State) bool { return x.searched(e, truth, st, then) })
	}
	var values []string
	switch c.FunctionName() {
	case "matches":
		if values = unmatching(want, now); truth {
			values = matching(want)
		}
	case "startsWith":
		values = []string{want + now, want + "x", want, want + "x/y:1.0", want + "1"}
	case "endsWith":
		values = []string{now + want, "x" + want, want}
	default:
		values = []string{now + want, want + now, want, "x" + want + "x"}
	}
	if !truth {
		values = append(values, "x"+now, now+"x", "other", "x", "example.com/other:1.0", "")
		if name := c.FunctionName(); name != "matches" {
			values = slices.Insert(values, 0, strings.ReplaceAll(now, want, ""), strings.ReplaceAll(now, want, "x"))
		}
	}
	for _, constant := range x.constants {
		if s, ok := constant.(string); ok {
			values = append(values, s)
		}
	}
	for _, v := range values {
		if x.assign(args[0], v, st, then) {
			return true
		}
	}
	if !truth {
		return false
	}
	// The text may stay if the part changes.
	return now != "" && x.assign(args[1], now, st, then)
}

// quantified is want for all() and exists() over fields.
func (x *search) quantified(e ast.Expr, truth bool, st *State, then next) bool {
	list, variables, body, _ := macro(e)
	if len(body) != 1 {
		return false
	}
	every := function(e) == "all"
	value, known := x.eval(list, st)
	element := func(key ast.Expr, isMap bool) ast.Expr {
		at := call(operators.Index, list, key)
		switch {
		case len(variables) == 2:
			return substituted(substituted(body[0], variables[0], key), variables[1], at)
		case isMap:
			return substituted(body[0], variables[0], key)
		}
		return substituted(body[0], variables[0], at)
	}
	var conditions []ast.Expr
	m, isMap := value.(map[string]any)
	elements, _ := value.([]any)
	for key := range m {
		conditions = append(conditions, element(text(key), true))
	}
	for i := range elements {
		conditions = append(conditions, element(number(i), false))
	}
	p, isPlace := x.place(list, st)
	if d := st.Documents[p.root]; isPlace && d != nil && d.Schema != nil && !known {
		s := schemaAt(d.Schema, p.path)
		isMap = s != nil && s.AdditionalProperties != nil
	}
	if truth == every {
		// Each element must have the value.
		var each func(st *State, i int) bool
		each = func(st *State, i int) bool {
			if i == len(conditions) {
				return then(st)
			}
			return x.want(conditions[i], truth, st, func(st *State) bool { return each(st, i+1) })
		}
		if len(conditions) > 0 && each(st, 0) {
			return true
		}
		if isPlace && (len(conditions) > 0 || !known) {
			if x.try(p, []any{[]any{}, map[string]any{}}, st, then) {
				return true
			}
			if out := st.remove(p); out != nil && then(out) {
				return true
			}
		}
		if known {
			return false
		}
	} else {
		for _, c := range conditions {
			if x.want(c, truth, st, then) {
				return true
			}
		}
	}
	if !isPlace {
		return false
	}
	if isMap {
		return x.key(p, body[0], st, func(st *State, key string) bool {
			return x.want(element(text(key), true), truth, st, then)
		})
	}
	for _, sample := range x.elements(p, st) {
		if out, i := st.add(p, sample); out != nil && x.want(element(number(i), false), truth, out, then) {
			return true
		}
	}
	return false
}

// elements returns values for a new element of a list.
func (x *search) elements(p place, st *State) []any {
	d := st.Documents[p.root]
	if d == nil || d.Schema == nil {
		return append([]any{"test", map[string]any{}}, x.constants...)
	}
	s := schemaAt(d.Schema, p.path)
	if s == nil || s.Items == nil || s.Items.Schema == nil {
		return nil
	}
	name := ""
	if last, ok := p.path[len(p.path)-1].(string); ok {
		name = last
	}
	small := sample(s.Items.Schema, name, 1)
	list := []any{small}
	object, ok := small.(map[string]any)
	if of := resolved(s.Items.Schema); ok && isUnion(of) {
		for _, member := range slices.Sorted(maps.Keys(of.Properties)) {
			property := of.Properties[member]
			if _, there := object[member]; !there {
				larger := maps.Clone(object)
				larger[member] = sample(&property, member, 1)
				list = append(list, larger)
			}
		}
	}
	return list
}

// key continues with a new key of a map, derived from the texts of a condition.
func (x *search) key(p place, body ast.Expr, st *State, then func(*State, string) bool) bool {
	names := []string{"test"}
	var visit func(ast.Expr)
	visit = func(e ast.Expr) {
		if s, ok := literal(e).(string); ok && s != "" {
			if strings.HasSuffix(s, "/") {
				for _, name := range x.names(p.root, st) {
					names = append(names, s+name)
				}
			}
			names = append(names, s, s+"x", "x"+s)
		}
		if function(e) == "matches" {
			args := e.AsCall().Args()
			if s, ok := literal(args[len(args)-1]).(string); ok {
				names = append(names, matching(s)...)
			}
		}
		for _, child := range mutants.Children(e) {
			visit(child)
		}
	}
	visit(body)
	for _, name := range names {
		at := p.child(name)
		for _, v := range x.samples(at, st) {
			if x.spent() {
				return true
			}
			if out := st.set(at, v); out != nil && then(out, name) {
				return true
			}
		}
	}
	return false
}

// names returns the names of elements of lists in an object, which keys of annotations may refer to.
func (x *search) names(root string, st *State) (list []string) {
	var visit func(v any)
	visit = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(v)) {
				visit(v[key])
			}
		case []any:
			for _, element := range v {
				m, _ := element.(map[string]any)
				if name, ok := m["name"].(string); ok && len(list) < 5 {
					list = append(list, name)
				}
				visit(element)
			}
		}
	}
	if d := st.Documents[root]; d != nil {
		visit(d.Sent)
	}
	return list
}

// perturb continues with other values of the fields that a condition reads.
func (x *search) perturb(e ast.Expr, st *State, then next) bool {
	if strings.Contains(x.text(e), "authorizer") {
		for _, u := range []map[string]any{nobody(), Administrator()} {
			out := st.copied(request)
			if out.User = u; then(out) {
				return true
			}
		}
	}
	var visit func(ast.Expr) bool
	visit = func(e ast.Expr) bool {
		if x.spent() {
			return true
		}
		if p, ok := x.place(e, st); ok && len(p.path) > 0 {
			values := x.samples(p, st)
			if now, known := x.eval(e, st); known {
				values = append(differentFrom(now), values...)
			}
			if x.try(p, values, st, then) {
				return true
			}
			out := st.remove(p)
			return out != nil && then(out)
		}
		if _, _, _, ok := macro(e); ok {
			return visit(e.AsCall().Target())
		}
		return slices.ContainsFunc(mutants.Children(e), visit)
	}
	return visit(e)
}

// assign continues with requests for which an expression has a value.
func (x *search) assign(e ast.Expr, value any, st *State, then next) bool {
	if x.spent() {
		return true
	}
	if truth, ok := value.(bool); ok && isCondition(e) {
		return x.want(e, truth, st, then)
	}
	if p, ok := x.place(e, st); ok {
		return x.assignPlace(e, p, value, st, then)
	}
	if function(e) == "" {
		return false
	}
	c := e.AsCall()
	args := c.Args()
	of := c.Target()
	if !c.IsMemberFunction() && len(args) > 0 {
		of = args[0]
	}
	text, isText := value.(string)
	n, isInt := value.(int64)
	switch name := c.FunctionName(); {
	case name == "size" && isInt && n >= 0 && n < 2000:
		return x.resize(sizedBy(e), int(n), st, then)
	case name == "quantity" || name == "duration" || name == "timestamp" || name == "semver":
		return x.assign(of, value, st, then)
	case (name == "int" || name == "double") && !c.IsMemberFunction():
		return x.assign(of, printed(value), st, then) || x.assign(of, value, st, then)
	case name == "asInteger" && isInt:
		return x.assign(of, strconv.FormatInt(n, 10), st, then)
	case name == "string" && isText:
		if parsed, err := strconv.ParseInt(text, 10, 64); err == nil && x.assign(of, parsed, st, then) {
			return true
		}
		return x.assign(of, text, st, then)
	case isText && slices.Contains([]string{"lowerAscii", "upperAscii", "trim", "replace"}, name):
		return x.assign(of, text, st, then)
	case name == operators.Add && len(args) == 2:
		return x.assignSum(args, value, st, then)
	case name == operators.Subtract && isInt:
		if r, ok := x.evalInt(args[1], st); ok && x.assign(args[0], n+r, st, then) {
			return true
		}
		l, ok := x.evalInt(args[0], st)
		return ok && x.assign(args[1], l-n, st, then)
	case name == operators.Multiply && isInt:
		r, ok := x.evalInt(args[1], st)
		return ok && r != 0 && x.assign(args[0], n/r, st, then)
	case name == operators.Conditional:
		return x.want(args[0], true, st, func(st *State) bool { return x.assign(args[1], value, st, then) }) ||
			x.want(args[0], false, st, func(st *State) bool { return x.assign(args[2], value, st, then) })
	case name == "orValue":
		return x.assign(of, value, st, then)
	case name == operators.Index && isText && function(args[0]) == "split":
		return x.assignPart(args[0], args[1], text, st, then)
	case name == "substring" && isText && len(args) == 1:
		begin, ok := x.evalInt(args[0], st)
		value, _ := x.eval(of, st)
		now, isNow := value.(string)
		return ok && isNow && int(begin) <= len(now) && x.assign(of, now[:begin]+text, st, then)
	}
	return false
}

// isCondition reports whether an expression is a condition with a value that other parts decide.
func isCondition(e ast.Expr) bool {
	switch function(e) {
	case operators.LogicalAnd, operators.LogicalOr, operators.LogicalNot, operators.Equals, operators.NotEquals, operators.In, "has", "hasValue", "all", "exists",
		operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals, "startsWith", "endsWith", "contains", "matches", "allowed":
		return true
	}
	return false
}

// assignPlace sets a field, or removes a field whose default is the value.
func (x *search) assignPlace(e ast.Expr, p place, value any, st *State, then next) bool {
	if function(e) == "orValue" {
		if d, ok := x.eval(e.AsCall().Args()[0], st); ok && reflect.DeepEqual(d, value) {
			if out := st.remove(p); out != nil && then(out) {
				return true
			}
		}
	}
	if value == nil {
		out := st.remove(p)
		return out != nil && then(out)
	}
	if st.set(p, value) == nil {
		// The last element of a list that is too short.
		if i, ok := last(p.path).(int); ok {
			parent := place{p.root, p.path[:len(p.path)-1]}
			out, at := st.add(parent, value)
			return out != nil && at == i && then(out)
		}
		for at, s := range p.path {
			// A field of an element of a list that is too short.
			if i, ok := s.(int); ok && i == 0 {
				parent := place{p.root, p.path[:at]}
				if _, there := get(x.document(p.root, st), p.path[:at+1]); there {
					continue
				}
				for _, element := range x.elements(parent, st) {
					if out, _ := st.add(parent, element); out != nil && x.try(p, []any{value}, out, then) {
						return true
					}
				}
				return false
			}
		}
	}
	return x.try(p, []any{value}, st, then)
}

func (x *search) document(root string, st *State) any {
	if d := st.Documents[root]; d != nil {
		return d.Seen
	}
	return map[string]any{"userInfo": st.User}
}

func last(path []any) any {
	if len(path) == 0 {
		return nil
	}
	return path[len(path)-1]
}

func printed(value any) any {
	if n, ok := value.(int64); ok {
		return strconv.FormatInt(n, 10)
	}
	return value
}

func (x *search) evalInt(e ast.Expr, st *State) (int64, bool) {
	v, ok := x.eval(e, st)
	n, isInt := v.(int64)
	return n, ok && isInt
}

// assignSum is assign for a sum of numbers or texts.
func (x *search) assignSum(args []ast.Expr, value any, st *State, then next) bool {
	for i, side := range args {
		v, ok := x.eval(args[1-i], st)
		if !ok {
			continue
		}
		switch want := value.(type) {
		case int64:
			if n, isInt := v.(int64); isInt && x.assign(side, want-n, st, then) {
				return true
			}
		case string:
			known, _ := v.(string)
			rest, cut := strings.CutSuffix(want, known)
			if i == 1 {
				rest, cut = strings.CutPrefix(want, known)
			}
			if cut && x.assign(side, rest, st, then) {
				return true
			}
		}
	}
	return false
}

// assignPart sets one part of a text with separators.
func (x *search) assignPart(split, index ast.Expr, part string, st *State, then next) bool {
	c := split.AsCall()
	i, ok := x.evalInt(index, st)
	value, known := x.eval(c.Args()[0], st)
	separator, isText := value.(string)
	if !ok || !known || !isText || i < 0 || i > 20 {
		return false
	}
	value, _ = x.eval(c.Target(), st)
	now, _ := value.(string)
	parts := strings.Split(now, separator)
	if now == "" {
		parts = []string{"test"}
	}
	for int(i) >= len(parts) {
		parts = append(parts, "test")
	}
	parts[i] = part
	return x.assign(c.Target(), strings.Join(parts, separator), st, then)
}

// resize changes the length of a text, a list or a map.
func (x *search) resize(e ast.Expr, n int, st *State, then next) bool {
	if e == nil {
		return false
	}
	value, known := x.eval(e, st)
	if list, variables, body, ok := macro(e); ok && len(body) == 1 {
		if function(e) == "map" {
			return x.resize(list, n, st, then)
		}
		found, _ := value.([]any)
		if function(e) != "filter" || len(found) == n {
			return false
		}
		condition := body[0]
		p, isPlace := x.place(list, st)
		if len(found) < n && isPlace {
			for _, sample := range x.elements(p, st) {
				out, i := st.add(p, sample)
				if out == nil {
					continue
				}
				if x.want(substituted(condition, variables[0], call(operators.Index, list, number(i))), true, out, func(st *State) bool {
					return then(st) || x.resize(e, n, st, then)
				}) {
					return true
				}
			}
			return false
		}
		element := x.filtered(e, 0, st)
		return element != nil && x.want(substituted(condition, variables[0], element), false, st, func(st *State) bool {
			return then(st) || x.resize(e, n, st, then)
		})
	}
	if function(e) == "split" && e.AsCall().IsMemberFunction() {
		separator, _ := x.eval(e.AsCall().Args()[0], st)
		by, ok := separator.(string)
		parts := make([]string, n)
		for i := range parts {
			parts[i] = "test"
		}
		return ok && n > 0 && x.assign(e.AsCall().Target(), strings.Join(parts, by), st, then)
	}
	p, ok := x.place(e, st)
	if !ok {
		return false
	}
	if !known {
		for _, v := range x.samples(p, st) {
			if out := st.set(p, v); out != nil && (then(out) || x.resize(e, n, out, then)) {
				return true
			}
		}
		return false
	}
	switch v := value.(type) {
	case string:
		if len(v) > n {
			return x.try(p, []any{v[:n]}, st, then)
		}
		return x.try(p, []any{v + strings.Repeat("a", n-len(v)), strings.Repeat("a", n)}, st, then)
	case []any:
		if len(v) > n {
			return x.try(p, []any{v[:n]}, st, then)
		}
		for _, element := range x.elements(p, st) {
			out := st
			for i := len(v); i < n && out != nil; i++ {
				if name, isText := element.(string); isText && i > 0 {
					element = name[:min(len(name), 4)] + "-" + strconv.Itoa(i)
				}
				out, _ = out.add(p, element)
			}
			if out != nil && then(out) {
				return true
			}
		}
	case map[string]any:
		changed := map[string]any{}
		keys := make([]string, 0, len(v))
		for key := range v {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		for _, key := range keys[:min(n, len(keys))] {
			changed[key] = v[key]
		}
		for i := 0; len(changed) < n; i++ {
			key := "test-" + strconv.Itoa(i)
			changed[key] = "test"
			if samples := x.samples(p.child(key), st); len(samples) > 0 {
				changed[key] = samples[0]
			}
		}
		return x.try(p, []any{changed}, st, then)
	}
	return false
}

// IsFalse reports whether an expression is the literal false.
func IsFalse(e ast.Expr) bool { return literal(e) == false }

// Branches returns the conditions inside an expression that decide on its value, and the presence of the fields that it
// reads.
func Branches(e ast.Expr) (conditions, presence []ast.Expr) {
	return branches(e, []string{Object, Params})
}

// branches is Branches for an expression that reads fields of the given variables.
func branches(e ast.Expr, roots []string) (conditions, presence []ast.Expr) {
	var visit func(ast.Expr, bool)
	visit = func(e ast.Expr, optional bool) {
		switch name := function(e); {
		case name == operators.Conditional:
			conditions = append(conditions, e.AsCall().Args()[0])
		case name == "replace" && e.AsCall().IsMemberFunction():
			conditions = append(conditions, member("contains", e.AsCall().Target(), e.AsCall().Args()[0]))
		case name == operators.OptSelect || name == operators.OptIndex || name == "has":
			optional = true
		}
		if e.Kind() == ast.SelectKind && !optional && slices.Contains(roots, rootOf(e)) {
			presence = append(presence, call("has", e))
		} else if e.Kind() == ast.StructKind && e.AsStruct().TypeName() == "JSONPatch" {
			presence = append(presence, patched(e.AsStruct().Fields())...)
		}
		target, variables, body, ok := macro(e)
		if !ok {
			for _, child := range mutants.Children(e) {
				visit(child, optional)
			}
			return
		}
		visit(target, optional)
		element := factory.NewIdent(0, variables[0])
		if function(e) == "filter" && len(body) == 1 {
			conditions = append(conditions, member("exists", target, element, body[0]))
		}
		for _, b := range body {
			decided, there := branches(b, variables)
			for _, c := range decided {
				conditions = append(conditions, member("exists", target, element, c))
			}
			for _, p := range there {
				presence = append(presence, member("all", target, element, p))
			}
		}
	}
	visit(e, false)
	return conditions, presence
}

// patched returns the condition that the field exists which a JSONPatch changes, or in which it adds a value; none if the
// path has no constant beginning.
func patched(fields []ast.EntryExpr) []ast.Expr {
	values := map[string]ast.Expr{}
	for _, f := range fields {
		values[f.AsStructField().Name()] = f.AsStructField().Value()
	}
	path, adds := values["path"], values["op"] != nil && literal(values["op"]) == "add"
	for ; path != nil && function(path) == operators.Add; adds = true {
		path = path.AsCall().Args()[0]
	}
	if path == nil {
		return nil
	}
	written, _ := literal(path).(string)
	steps := strings.Split(written, "/")[1:]
	if adds && len(steps) > 0 {
		steps = steps[:len(steps)-1]
	}
	var condition []ast.Expr
	at := factory.NewIdent(0, Object)
	for _, step := range steps {
		step = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
		if n, err := strconv.Atoi(step); err == nil {
			condition, at = []ast.Expr{call(operators.Greater, call("size", at), number(n))}, call(operators.Index, at, number(n))
		} else if plain.MatchString(step) {
			at = factory.NewSelect(0, at, step)
			condition = []ast.Expr{call("has", at)}
		} else {
			condition, at = []ast.Expr{call(operators.In, text(step), at)}, call(operators.Index, at, text(step))
		}
	}
	return condition
}

// plain matches the name of a field that an expression selects.
var plain = regexp.MustCompile(`^[A-Za-z_]\w*$`)

// rootOf returns the variable of a field; empty for other expressions.
func rootOf(e ast.Expr) string {
	for e.Kind() == ast.SelectKind {
		e = e.AsSelect().Operand()
	}
	return ident(e)
}
