package expression

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apimachinery/pkg/util/version"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/lazy"
)

// Variable is one variable of a policy.
type Variable struct {
	Name       string
	Expression string
}

// Variables are the variables of a policy, in order: each may use the earlier ones (S16.10). They
// are compiled with the first expression that may use them.
type Variables struct {
	list  []Variable
	scope Scope

	once sync.Once
	// object is the type of the variable variables. It does not change after the variables are
	// compiled.
	object *apiservercel.DeclType
	// compiled has the expression of each name. If several variables have the same name, the last
	// one counts (S13.17).
	compiled map[string]*Expression

	// trials are for evaluations without a request; see Trials.
	trials struct {
		once sync.Once
		list []*Trials
	}

	mu struct {
		sync.Mutex
		// environments are the environments with the variables, by scope.
		environments map[Scope]*cel.Env
	}
}

// NewVariables returns the variables of a list. scope is the scope of their expressions.
func NewVariables(list []Variable, scope Scope) *Variables {
	return &Variables{list: list, scope: scope}
}

func variablesKey(list []Variable, scope Scope) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%+v", scope)
	for _, v := range list {
		b.WriteString(strconv.Quote(v.Name))
		b.WriteString(strconv.Quote(v.Expression))
	}
	return b.String()
}

// compile compiles the variables.
func (v *Variables) compile() {
	v.once.Do(func() {
		v.object = newVariablesType()
		v.compiled = make(map[string]*Expression, len(v.list))
		env, err := v.extend(v.scope)
		for _, variable := range v.list {
			e := &Expression{key: key{variable.Expression, v.scope, nil, Anything}}
			e.once.Do(func() {
				if err != nil {
					e.err = &CompileError{Detail: err.Error(), Internal: true}
					return
				}
				e.env = env
				e.program, e.output, e.err = compile(env, variable.Expression, Anything)
			})
			v.object.Fields[variable.Name] = apiservercel.NewDeclField(variable.Name, declared(e.output), true, nil, nil)
			v.compiled[variable.Name] = e
		}
		v.mu.environments = map[Scope]*cel.Env{v.scope: env}
	})
}

// environment returns the environment of a scope with the variables.
func (v *Variables) environment(scope Scope) (*cel.Env, error) {
	v.compile()
	v.mu.Lock()
	defer v.mu.Unlock()
	if env := v.mu.environments[scope]; env != nil {
		return env, nil
	}
	env, err := v.extend(scope)
	if err == nil {
		v.mu.environments[scope] = env
	}
	return env, err
}

// extend returns an environment that declares the variable variables.
func (v *Variables) extend(scope Scope) (*cel.Env, error) {
	return withVariables(environmentOf(scope), v.object)
}

// newVariablesType returns the type of the variable variables, to which fields are added one by
// one.
func newVariablesType() *apiservercel.DeclType {
	return apiservercel.NewObjectType("kubernetes.variables", map[string]*apiservercel.DeclField{})
}

// withVariables adds the variable variables to an environment.
func withVariables(to *environment.EnvSet, object *apiservercel.DeclType) (*cel.Env, error) {
	set, err := to.Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions:        []cel.EnvOption{cel.Variable("variables", object.CelType())},
		DeclTypes:         []*apiservercel.DeclType{object},
	})
	if err != nil {
		return nil, err
	}
	return set.StoredExpressionsEnv(), nil
}

// Errors returns the errors of the variables that do not compile, by name.
func (v *Variables) Errors() map[string]error {
	if v == nil {
		return nil
	}
	v.compile()
	var errs map[string]error
	for name, e := range v.compiled {
		if err := e.Err(); err != nil {
			if errs == nil {
				errs = map[string]error{}
			}
			errs[name] = err
		}
	}
	return errs
}

// values returns the value of the variable variables in a run. Each of its fields is evaluated when
// an expression first uses it, and the cost counts for the run (S16.9).
func (v *Variables) values(r *Run) ref.Val {
	v.compile()
	object := lazy.NewMapValue(v.object)
	for name, e := range v.compiled {
		begun := false
		object.Append(name, func(*lazy.MapValue) ref.Val {
			// The last variable of a name counts, even within a variable that refers to an earlier
			// one.
			if begun {
				return types.NewErr("composited variable %q refers to itself", name)
			}
			begun = true
			if e.err != nil {
				return types.NewErr("composited variable %q fails to compile: %v", name, e.err)
			}
			value, cost, err := evaluate(r.ctx, e.program, r)
			if cost == math.MaxUint64 {
				return types.NewErr("unable to calculate cost of variable %q", name)
			}
			r.spend(cost)
			if r.o.Witness != nil {
				r.show(r.o.Witness, e)
			}
			if err != nil {
				return types.NewErr("composited variable %q fails to evaluate: %v", name, err)
			}
			return value
		})
	}
	return object
}

// simple are the types that CEL and object fields share.
var simple = map[*cel.Type]*apiservercel.DeclType{
	cel.AnyType:       apiservercel.AnyType,
	cel.BoolType:      apiservercel.BoolType,
	cel.BytesType:     apiservercel.BytesType,
	cel.DoubleType:    apiservercel.DoubleType,
	cel.DurationType:  apiservercel.DurationType,
	cel.IntType:       apiservercel.IntType,
	cel.NullType:      apiservercel.NullType,
	cel.StringType:    apiservercel.StringType,
	cel.TimestampType: apiservercel.TimestampType,
	cel.UintType:      apiservercel.UintType,
}

// declared converts a type to the type of an object's field, which does not know object types.
func declared(t *cel.Type) *apiservercel.DeclType {
	if t == nil {
		return apiservercel.DynType
	}
	if d, ok := simple[t]; ok {
		return d
	}
	if t.HasTrait(traits.ContainerType) && t.HasTrait(traits.IndexerType) {
		switch of := t.Parameters(); len(of) {
		case 1:
			return apiservercel.NewListType(declared(of[0]), -1)
		case 2:
			return apiservercel.NewMapType(declared(of[0]), declared(of[1]), -1)
		}
	}
	return apiservercel.DynType
}
