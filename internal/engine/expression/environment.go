package expression

import (
	"fmt"
	"slices"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"k8s.io/apimachinery/pkg/util/version"
	admissioncel "k8s.io/apiserver/pkg/admission/plugin/cel"
	limits "k8s.io/apiserver/pkg/apis/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
	"k8s.io/apiserver/pkg/cel/mutation"
)

// Scope selects the variables that an expression may use in addition to object, oldObject, request
// and namespaceObject, and the types.
type Scope struct {
	// Params declares params.
	Params bool
	// Authorizer declares authorizer and authorizer.requestResource.
	Authorizer bool
	// Patches declares the types of mutations.
	Patches bool
}

// environments has the language for new and for stored expressions, by scope. Creating an
// environment takes some milliseconds, so each is created when its first expression is compiled.
var environments = func() (all [8]func() *environment.EnvSet) {
	for i := range all {
		all[i] = sync.OnceValue(func() *environment.EnvSet {
			set, err := newEnvironment(Scope{Params: i&1 != 0, Authorizer: i&2 != 0, Patches: i&4 != 0}, nil)
			if err != nil {
				panic(fmt.Sprintf("the CEL environment cannot be made: %v", err))
			}
			return set
		})
	}
	return all
}()

// environmentOf returns the environment of a scope.
func environmentOf(s Scope) *environment.EnvSet {
	i := 0
	if s.Params {
		i |= 1
	}
	if s.Authorizer {
		i |= 2
	}
	if s.Patches {
		i |= 4
	}
	return environments[i]()
}

// newEnvironment returns the environment of a scope. object is the type of the objects; nil if they
// may have any type, as at run time.
func newEnvironment(s Scope, object *apiservercel.DeclType) (*environment.EnvSet, error) {
	return Shapes{Object: object, HasParams: s.Params, Authorizer: s.Authorizer, Patches: s.Patches}.environment()
}

// environment returns the environment of expressions for objects and params of these types.
func (s Shapes) environment(more ...cel.EnvOption) (*environment.EnvSet, error) {
	// An expression that uses an unknown field of namespaceObject does not compile, even where the
	// value is always null (S2.30, S16.6).
	request, namespace := admissioncel.BuildRequestType(), admissioncel.BuildNamespaceType()
	declared := []*apiservercel.DeclType{namespace, request}
	of := func(t *apiservercel.DeclType) *cel.Type {
		if t == nil {
			return cel.DynType
		}
		declared = append(declared, t)
		return t.CelType()
	}
	object := of(s.Object)
	options := append(more,
		cel.Variable("object", object),
		cel.Variable("oldObject", object),
		cel.Variable("request", request.CelType()),
		cel.Variable("namespaceObject", namespace.CelType()),
	)
	if s.HasParams {
		options = append(options, cel.Variable("params", of(s.Params)))
	}
	if s.Authorizer {
		options = append(options, cel.Variable("authorizer", library.AuthorizerType), cel.Variable("authorizer.requestResource", library.ResourceCheckType))
	}
	set, err := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Extend(
		environment.VersionedOptions{
			IntroducedVersion: version.MajorMinor(1, 0),
			EnvOptions:        options,
			DeclTypes:         declared,
		},
		environment.StrictCostOpt,
	)
	if err == nil && s.Patches {
		set, err = set.Extend(environment.VersionedOptions{
			IntroducedVersion: version.MajorMinor(1, 0),
			EnvOptions: []cel.EnvOption{
				common.ResolverEnvOption(&mutation.DynamicTypeResolver{}),
				environment.UnversionedLib(library.JSONPatch),
			},
		})
	}
	return set, err
}

// conditions is the scope of the match conditions of webhooks.
var conditions = Scope{Authorizer: true}

// check parses an expression and checks its types.
func check(env *cel.Env, expression string, result Result) (*cel.Ast, *CompileError) {
	checked, issues := env.Compile(expression)
	if issues != nil {
		return nil, &CompileError{Detail: "compilation failed: " + issues.String()}
	}
	got, want := checked.OutputType(), results[result]
	if want != nil && !slices.ContainsFunc(want, got.IsExactType) {
		if len(want) == 1 {
			return nil, &CompileError{Detail: fmt.Sprintf("must evaluate to %v but got %v", want[0], got)}
		}
		return nil, &CompileError{Detail: fmt.Sprintf("must evaluate to one of %v but got %v", want, got)}
	}
	return checked, nil
}

// compile compiles an expression to a program, and returns the type of its value.
func compile(env *cel.Env, expression string, result Result) (cel.Program, *cel.Type, *CompileError) {
	checked, wrong := check(env, expression, result)
	if wrong != nil {
		return nil, nil, wrong
	}
	program, err := env.Program(checked, cel.InterruptCheckFrequency(limits.CheckFrequency), bounded(env))
	if err != nil {
		return nil, nil, &CompileError{Detail: "program instantiation failed: " + err.Error(), Internal: true}
	}
	return program, checked.OutputType(), nil
}

// LooksAtCaller reports whether an expression uses the user of the request, and whether it uses
// the user's permissions. Both are false for an expression that cannot be parsed.
func LooksAtCaller(expression string) (user, rights bool) {
	parsed, issues := environmentOf(conditions).StoredExpressionsEnv().Parse(expression)
	if issues.Err() != nil {
		return false, false
	}
	// A use of the variable request is harmless if it selects another field.
	requests, harmless := 0, 0
	ast.PreOrderVisit(parsed.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.IdentKind:
			switch e.AsIdent() {
			case "request":
				requests++
			case "authorizer", "authorizer.requestResource":
				rights = true
			}
		case ast.SelectKind:
			s := e.AsSelect()
			if of := s.Operand(); of.Kind() == ast.IdentKind {
				switch {
				case of.AsIdent() == "request" && s.FieldName() != "userInfo":
					harmless++
				case of.AsIdent() == "authorizer":
					rights = true
				}
			}
		}
	}))
	return requests > harmless, rights
}

// LooksAtNamespace reports whether an expression uses the variable namespaceObject. It is false
// for an expression that cannot be parsed.
func LooksAtNamespace(expression string) bool { return looksAt(expression, "namespaceObject") }

// LooksAtObjects reports whether an expression uses the variable object or oldObject. It is
// false for an expression that cannot be parsed.
func LooksAtObjects(expression string) bool { return looksAt(expression, "object", "oldObject") }

// looksAt reports whether an expression uses one of the variables.
func looksAt(expression string, variables ...string) bool {
	parsed, issues := environmentOf(conditions).StoredExpressionsEnv().Parse(expression)
	return issues.Err() == nil && uses(parsed, variables...)
}

// uses reports whether an expression uses one of the names.
func uses(parsed *cel.Ast, names ...string) (found bool) {
	ast.PreOrderVisit(parsed.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		found = found || e.Kind() == ast.IdentKind && slices.Contains(names, e.AsIdent())
	}))
	return found
}

// CompileError is the compilation error of an expression.
type CompileError struct {
	// Detail describes the error, with its position in the expression.
	Detail string
	// Internal reports whether the cause is an error of this program, not of the expression.
	Internal bool
}

// Error returns the detail.
func (e *CompileError) Error() string { return e.Detail }

// Check reports whether an expression may be stored as a match condition of a webhook: it compiles
// and its type is bool (S1.23). An expression that is already stored may use the full language of
// this version (S1.24). The error is a *CompileError.
func Check(expression string, stored bool) error {
	env := environmentOf(conditions).NewExpressionsEnv()
	if stored {
		env = environmentOf(conditions).StoredExpressionsEnv()
	}
	if _, _, err := compile(env, expression, Bool); err != nil {
		return err
	}
	return nil
}
