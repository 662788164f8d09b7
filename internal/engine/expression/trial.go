package expression

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	"github.com/google/cel-go/parser"
	limits "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
)

// mostLoops bounds how often a trial is repeated for loops over unknown values, each time for the
// loops of one level.
const mostLoops = 4

// Setting describes a set of requests for Trials.Of. A nil field is unknown.
type Setting struct {
	Known
	// Object and Old are the objects, if the operation has them.
	Object, Old *Partial
	// Missing is the field that Object, or with OfOld Old, does not have; nil for none.
	Missing []string
	OfOld   bool
	// Free is set if any values of other fields may be compared with constants although the field is missing.
	Free bool
	// Present are paths of fields that both objects have, with the names joined by dots.
	Present map[string]bool
	// User is the user. RequestName and RequestNamespace are request.name and request.namespace.
	User                          user.Info
	RequestName, RequestNamespace *string
	// Kind and Version are request.kind.kind and the version of the kind and the resource.
	Kind, Version *string
	// NamespaceObject is the namespace.
	NamespaceObject *Partial
}

// Trial is the outcome of an expression for the requests of a Setting.
type Trial struct {
	// Value is the value for each request; nil if it depends on unknown values, or is an error.
	Value ref.Val
	// Err is the error for each request for which the conditions in If hold; nil if there may be
	// none.
	Err error
	// If are parts of the expression. The text says which value they have.
	If []string
}

// Trials evaluates an expression with the variables that it reads, for requests that are known in
// parts. It is for one goroutine.
type Trials struct {
	env       *cel.Env
	tree      *ast.AST
	variables []*Trials
	name      string
	programs  map[string]cel.Program
	// last is the outcome for the setting of the last trial: expressions share variables.
	last struct {
		*Setting
		Trial
	}
}

// Trials returns the trials of the expression; ok is false if it does not compile.
func (a *Analysis) Trials() (t *Trials, ok bool) {
	if a.compile(); a.err != nil {
		return nil, false
	}
	scope := a.e.scope
	scope.Params, scope.Authorizer = true, true
	env := environmentOf(scope).StoredExpressionsEnv()
	if t, ok = newTrials(env, "", a.e.text); !ok || a.e.variables == nil {
		return t, ok
	}
	t.variables = a.e.variables.trialsOf()
	return t, true
}

// trialsOf returns the trials of the variables, which all expressions share.
func (v *Variables) trialsOf() []*Trials {
	v.trials.once.Do(func() {
		scope := v.scope
		scope.Params, scope.Authorizer = true, true
		env := environmentOf(scope).StoredExpressionsEnv()
		for _, one := range v.list {
			if t, ok := newTrials(env, one.Name, one.Expression); ok {
				t.variables = slices.Clone(v.trials.list)
				v.trials.list = append(v.trials.list, t)
			}
		}
	})
	return v.trials.list
}

func newTrials(env *cel.Env, name, text string) (*Trials, bool) {
	parsed, issues := env.Parse(text)
	if issues.Err() != nil {
		return nil, false
	}
	return &Trials{env: env, tree: parsed.NativeRep(), name: name, programs: map[string]cel.Program{}}, true
}

// Named returns the trials of a variable of the policy; nil if there is none.
func (t *Trials) Named(name string) *Trials {
	for _, v := range slices.Backward(t.variables) {
		if v.name == name {
			return v
		}
	}
	return nil
}

// Paths returns the fields of a variable, object or oldObject, that the expression and its
// variables read, as the longest paths of constant names.
func (t *Trials) Paths(root string) (list [][]string) {
	for _, c := range t.chains(t.tree.Expr(), nil) {
		if c[0] == root && len(c) > 1 && !slices.ContainsFunc(list, func(known []string) bool { return slices.Equal(known, c[1:]) }) {
			list = append(list, c[1:])
		}
	}
	return list
}

// chains returns the paths that a part reads, each with its variable. The variables of loops are
// replaced by the paths in loops.
func (t *Trials) chains(e ast.Expr, loops map[string][][]string) (list [][]string) {
	inner := map[ast.Expr]bool{}
	ast.PreOrderVisit(e, ast.NewExprVisitor(func(e ast.Expr) {
		if inner[e] {
			return
		}
		root, path, parts := chain(e)
		for _, p := range parts {
			inner[p] = true
		}
		switch of, loop := loops[root]; {
		case root == "":
		case loop:
			list = append(list, of...)
		case root == "variables" && len(path) > 0:
			if v := t.Named(path[0]); v != nil {
				list = append(list, v.chains(v.tree.Expr(), nil)...)
			}
		default:
			list = append(list, append([]string{root}, path...))
		}
	}))
	return list
}

// chain returns the variable and the constant names of a part such as object.metadata.labels['a'];
// root is empty for another part. parts are the selections in it.
func chain(e ast.Expr) (root string, path []string, parts []ast.Expr) {
	switch e.Kind() {
	case ast.IdentKind:
		return e.AsIdent(), nil, nil
	case ast.SelectKind:
		s := e.AsSelect()
		root, path, parts = chain(s.Operand())
		return root, append(path, s.FieldName()), append(parts, s.Operand())
	case ast.CallKind:
		call := e.AsCall()
		if name := call.FunctionName(); name != operators.Index && name != operators.OptIndex && name != operators.OptSelect || call.Args()[1].Kind() != ast.LiteralKind {
			return "", nil, nil
		}
		if key, ok := call.Args()[1].AsLiteral().(types.String); ok {
			root, path, parts = chain(call.Args()[0])
			return root, append(path, string(key)), append(parts, call.Args()...)
		}
	}
	return "", nil, nil
}

// Of evaluates the expression for the requests of a setting. The outcome is empty if it is not
// known, or expensive to find, or if ctx ends. The setting must not change afterwards.
func (t *Trials) Of(ctx context.Context, s *Setting) Trial {
	if t.last.Setting != s {
		t.last.Setting, t.last.Trial = s, t.of(ctx, s)
	}
	return t.last.Trial
}

func (t *Trials) of(ctx context.Context, s *Setting) Trial {
	loops := map[int64]bool{}
	for range mostLoops {
		run := t.run(ctx, s, loops)
		if run == nil {
			return Trial{}
		}
		if run.value != nil && !types.IsUnknownOrError(run.value) {
			if len(loops) > 0 {
				// The loop may have no element.
				return Trial{}
			}
			return Trial{Value: run.value}
		}
		if !run.unknownLoops(loops) {
			return run.outcome()
		}
	}
	return Trial{}
}

// Variable returns the variable of the policy whose failure is the failure of the expression for the requests of a
// setting; empty if it fails itself.
func (t *Trials) Variable(ctx context.Context, s *Setting) string {
	trial := t.Of(ctx, s)
	if trial.Err == nil {
		return ""
	}
	reads := strings.Fields(t.texts())
	for _, v := range t.variables {
		if !slices.Contains(reads, v.name) {
			continue
		}
		if of := v.Of(ctx, s); of.Err != nil && len(of.If) == 0 && of.Err.Error() == trial.Err.Error() {
			return cmp.Or(v.Variable(ctx, s), v.name)
		}
	}
	return ""
}

// trialRun is one evaluation.
type trialRun struct {
	*Trials
	s     *Setting
	tree  *ast.AST
	state interpreter.EvalState
	value ref.Val
	// loops are the paths of the values in a loop, by its variable. ranges are the paths of all loops, and
	// unknown the texts of the unknown ranges.
	loops   map[string][][]string
	ranges  map[int64][][]string
	unknown map[int64]string
}

// someElements is the variable with a list of unknown elements.
const someElements = "@some"

// run evaluates the expression. The loops in loops have one unknown element.
func (t *Trials) run(ctx context.Context, s *Setting, loops map[int64]bool) *trialRun {
	tree := ast.Copy(t.tree)
	run := &trialRun{Trials: t, s: s, tree: tree, loops: map[string][][]string{}, ranges: map[int64][][]string{}, unknown: map[int64]string{}}
	ast.PreOrderVisit(tree.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() == ast.ComprehensionKind {
			over := e.AsComprehension().IterRange()
			if run.ranges[e.ID()] = t.chains(over, nil); loops[e.ID()] {
				run.unknown[e.ID()] = "size(" + run.text(over) + ") > 0"
			}
		}
	}))
	t.prepare(tree, s, loops)
	key := fmt.Sprint(slices.Sorted(maps.Keys(loops)), s.Present)
	program := t.programs[key]
	if program == nil {
		var err error
		program, err = t.env.PlanProgram(tree, cel.EvalOptions(cel.OptExhaustiveEval),
			cel.CostLimit(constantLimit), cel.InterruptCheckFrequency(limits.CheckFrequency))
		if err != nil {
			return nil
		}
		t.programs[key] = program
	}
	vars := s.activation()
	values := &Partial{Fields: map[string]any{}}
	for _, v := range t.variables {
		if !strings.Contains(t.texts(), v.name) {
			continue
		}
		values.Fields[v.name] = Unknown
		switch trial := v.Of(ctx, s); {
		case trial.Value != nil:
			values.Fields[v.name] = trial.Value
		case trial.Err != nil && len(trial.If) == 0:
			values.Fields[v.name] = types.WrapErr(trial.Err)
		}
	}
	vars["variables"] = values
	value, details, err := program.ContextEval(ctx, vars)
	if ctx.Err() != nil || details == nil || details.ActualCost() != nil && *details.ActualCost() > constantLimit {
		return nil
	}
	if err != nil {
		value = types.WrapErr(err)
	}
	run.state, run.value = details.State(), value
	return run
}

// texts returns the names of the variables that the expression reads.
func (t *Trials) texts() string {
	var names []string
	ast.PreOrderVisit(t.tree.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if root, path, _ := chain(e); root == "variables" && len(path) > 0 {
			names = append(names, path[0])
		}
	}))
	return strings.Join(names, " ")
}

// prepare writes known facts into a tree.
func (t *Trials) prepare(tree *ast.AST, s *Setting, loops map[int64]bool) {
	factory := ast.NewExprFactory()
	ast.PostOrderVisit(tree.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.SelectKind:
			if !e.AsSelect().IsTestOnly() {
				return
			}
			root, path, _ := chain(e)
			if (root == "object" || root == "oldObject") && s.Present[strings.Join(path, ".")] && s.has(root) {
				e.SetKindCase(factory.NewLiteral(e.ID(), types.True))
			}
		case ast.CallKind:
			// The left value decides how values are compared.
			call := e.AsCall()
			if name := call.FunctionName(); (name == operators.Equals || name == operators.NotEquals) && call.Args()[0].Kind() != ast.SelectKind {
				e.SetKindCase(factory.NewCall(e.ID(), name, call.Args()[1], call.Args()[0]))
			}
		case ast.ComprehensionKind:
			if c := e.AsComprehension(); loops[e.ID()] {
				c.IterRange().SetKindCase(factory.NewIdent(c.IterRange().ID(), someElements))
			}
		}
	}))
}

// has reports whether the operation has an object or old object.
func (s *Setting) has(root string) bool {
	switch s.Operation {
	case "CREATE":
		return root == "object"
	case "DELETE":
		return root == "oldObject"
	}
	return s.Operation == "UPDATE"
}

// unknownLoops adds the loops over unknown values to loops, and reports whether there are more.
func (r *trialRun) unknownLoops(loops map[int64]bool) (more bool) {
	ast.PostOrderVisit(r.tree.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.ComprehensionKind || loops[e.ID()] {
			return
		}
		c := e.AsComprehension()
		if v, ok := r.state.Value(c.IterRange().ID()); ok && types.IsUnknown(v) && !c.HasIterVar2() {
			loops[e.ID()], more = true, true
		}
	}))
	return more
}

// given is a part whose value a failure depends on.
type given struct {
	part  ast.Expr
	value bool
	// loop is set for a loop that has an element.
	loop bool
}

func (r *trialRun) outcome() Trial {
	list, err := r.fails(r.tree.Expr())
	if err == nil {
		return Trial{}
	}
	t := Trial{Err: err}
	for _, g := range list {
		if g.loop {
			if !r.s.independent(r.ranges[g.part.ID()], true) {
				return Trial{}
			}
			t.If = append(t.If, r.unknown[g.part.ID()])
			continue
		}
		if !r.s.independent(r.chains(g.part, r.loops), false) && !(r.s.Free && compares(g.part)) {
			return Trial{}
		}
		text := r.text(g.part)
		if !g.value {
			text = "!(" + text + ")"
			if g.part.Kind() == ast.CallKind && g.part.AsCall().FunctionName() == operators.LogicalNot {
				text = r.text(g.part.AsCall().Args()[0])
			}
		}
		t.If = append(t.If, text)
	}
	return t
}

// compares reports whether a part only compares fields with constants.
func compares(e ast.Expr) bool {
	if e.Kind() != ast.CallKind {
		return false
	}
	args := e.AsCall().Args()
	switch e.AsCall().FunctionName() {
	case operators.LogicalAnd, operators.LogicalOr, operators.LogicalNot:
		return !slices.ContainsFunc(args, func(arg ast.Expr) bool { return !compares(arg) })
	case operators.Equals, operators.NotEquals:
		field := args[0]
		if field.Kind() == ast.LiteralKind {
			field = args[1]
		}
		root, path, _ := chain(field)
		return len(path) > 1 && root != "" && (args[0].Kind() == ast.LiteralKind || args[1].Kind() == ast.LiteralKind)
	}
	return false
}

// text returns the source of a part.
func (r *trialRun) text(e ast.Expr) string {
	if text, err := parser.Unparse(e, r.tree.SourceInfo()); err == nil {
		return text
	}
	return "a condition"
}

// Independent reports whether the expression may have any value in the requests of a setting.
func (t *Trials) Independent(s *Setting) bool {
	return s.independent(t.chains(t.tree.Expr(), nil), false)
}

// independent reports whether a part that reads some paths may have any value in the requests of
// the setting. The fields of an object may exclude that another field of it is missing; lists may
// have elements in any case.
func (s *Setting) independent(paths [][]string, list bool) bool {
	if s.Missing == nil {
		return true
	}
	missing := append([]string{"object"}, s.Missing...)
	if s.OfOld {
		missing[0] = "oldObject"
	}
	// An object with any content may have no name yet.
	unnamed := slices.Equal(s.Missing, []string{"metadata", "name"})
	return !slices.ContainsFunc(paths, func(c []string) bool {
		if c[0] != "object" && c[0] != "oldObject" {
			return false
		}
		return !list && (len(c) < 2 || c[1] != "metadata" && !unnamed) || starts(c, missing) || starts(missing, c)
	})
}

// starts reports whether a path begins with another one.
func starts(path, with []string) bool {
	return len(path) >= len(with) && slices.Equal(path[:len(with)], with)
}

// fails returns the error of a part that fails if the parts in the list have the values there; nil if it does not fail.
func (r *trialRun) fails(e ast.Expr) ([]given, error) {
	if v, found := r.state.Value(e.ID()); found && v != nil && !types.IsUnknown(v) {
		if failed, is := v.(*types.Err); is {
			return nil, failed
		}
		return nil, nil
	}
	first := func(parts ...ast.Expr) ([]given, error) {
		for _, p := range parts {
			if list, err := r.fails(p); err != nil {
				return list, err
			}
		}
		return nil, nil
	}
	switch e.Kind() {
	case ast.SelectKind:
		return r.fails(e.AsSelect().Operand())
	case ast.CallKind:
		return r.call(e.AsCall())
	case ast.ListKind:
		return first(e.AsList().Elements()...)
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			if list, err := first(entry.AsMapEntry().Key(), entry.AsMapEntry().Value()); err != nil {
				return list, err
			}
		}
	case ast.StructKind:
		for _, field := range e.AsStruct().Fields() {
			if list, err := r.fails(field.AsStructField().Value()); err != nil {
				return list, err
			}
		}
	case ast.ComprehensionKind:
		c := e.AsComprehension()
		r.loops[c.IterVar()] = r.ranges[e.ID()]
		// The last iteration has the values in state.
		list, err := first(c.IterRange(), c.LoopStep(), c.Result())
		if _, unknown := r.unknown[e.ID()]; err != nil && unknown {
			list = append(list, given{part: e, loop: true})
		}
		return list, err
	}
	return nil, nil
}

// dual is the other one of the operators && and ||.
var dual = map[string]string{operators.LogicalAnd: operators.LogicalOr, operators.LogicalOr: operators.LogicalAnd}

// contradict reports whether a part has one value in one list, and the other value in the other list.
func (r *trialRun) contradict(some, others []given) bool {
	plain := func(g given) (string, bool) {
		for g.part.Kind() == ast.CallKind && g.part.AsCall().FunctionName() == operators.LogicalNot {
			g.part, g.value = g.part.AsCall().Args()[0], !g.value
		}
		return r.text(g.part), g.value
	}
	return slices.ContainsFunc(some, func(one given) bool {
		text, value := plain(one)
		return slices.ContainsFunc(others, func(other given) bool {
			same, opposite := plain(other)
			return text == same && value != opposite
		})
	})
}

// call is fails for a function.
func (r *trialRun) call(call ast.CallExpr) ([]given, error) {
	args := call.Args()
	switch name := call.FunctionName(); name {
	case operators.LogicalAnd, operators.LogicalOr:
		for i, arg := range args {
			list, err := r.fails(arg)
			if err == nil {
				continue
			}
			other := args[1-i]
			// An accumulator has its first value.
			if v, _ := r.state.Value(other.ID()); types.IsUnknown(v) && (other.Kind() != ast.IdentKind || !strings.HasPrefix(other.AsIdent(), "@")) {
				if more, failed := r.fails(other); failed != nil && !r.contradict(list, more) {
					// The other operand fails as well, or decides.
					return append(list, more...), err
				} else if failed != nil && other.Kind() == ast.CallKind && other.AsCall().FunctionName() == dual[name] {
					// One of its own operands keeps it from failing, and from deciding.
					return list, err
				}
				list = append(list, given{part: other, value: name == operators.LogicalAnd})
			}
			return list, err
		}
		return nil, nil
	case operators.Conditional:
		if list, err := r.fails(args[0]); err != nil {
			return list, err
		}
		v, _ := r.state.Value(args[0].ID())
		for i, value := range []bool{true, false} {
			if known := v == types.True || v == types.False; known && (v == types.True) != value {
				continue
			}
			if list, err := r.fails(args[1+i]); err != nil {
				if v != types.True && v != types.False {
					list = append(list, given{part: args[0], value: value})
				}
				return list, err
			}
		}
		return nil, nil
	case "orValue", "or":
		return r.fails(call.Target())
	}
	if call.IsMemberFunction() {
		if list, err := r.fails(call.Target()); err != nil {
			return list, err
		}
	}
	for _, arg := range args {
		if list, err := r.fails(arg); err != nil {
			return list, err
		}
	}
	return nil, nil
}

// activation returns the variables.
func (s *Setting) activation() map[string]any {
	request, resource, kind := map[string]any{}, map[string]any{}, map[string]any{}
	for name, value := range map[string]*string{"name": s.RequestName, "namespace": s.RequestNamespace} {
		if value != nil {
			request[name] = *value
		}
	}
	for name, value := range map[string]*string{"group": s.Group, "resource": s.Resource, "version": s.Version} {
		if value != nil {
			resource[name] = *value
		}
	}
	for name, value := range map[string]*string{"group": s.Group, "kind": s.Kind, "version": s.Version} {
		if value != nil {
			kind[name] = *value
		}
	}
	request["resource"], request["kind"] = &Partial{Fields: resource}, &Partial{Fields: kind}
	if s.Operation != "" {
		request["operation"] = s.Operation
	}
	if s.User != nil {
		extra := map[string]any{}
		for k, v := range s.User.GetExtra() {
			extra[k] = v
		}
		request["userInfo"] = map[string]any{"username": s.User.GetName(), "groups": s.User.GetGroups(), "uid": s.User.GetUID(), "extra": extra}
	}
	vars := map[string]any{
		"request": &Partial{Fields: request}, "params": Unknown, "authorizer": Unknown, "authorizer.requestResource": Unknown, someElements: partOf([]any{Unknown}),
		"object": Unknown, "oldObject": Unknown, "namespaceObject": types.NullValue,
	}
	if s.Known.Namespace {
		vars["namespaceObject"] = Unknown
	}
	for name, object := range map[string]*Partial{"object": s.Object, "oldObject": s.Old, "namespaceObject": s.NamespaceObject} {
		if object != nil {
			vars[name] = object
		}
	}
	for _, name := range []string{"object", "oldObject"} {
		if s.Operation != "" && !s.has(name) && (s.Operation != "CONNECT" || name == "oldObject") {
			vars[name] = types.NullValue
		}
	}
	return vars
}
