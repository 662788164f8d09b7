package policy

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/engine/condition"
	"github.com/gatehouse-dev/gatehouse/internal/engine/expression"
)

// Policy is a policy whose expressions are ready for evaluation. They are compiled when they are
// first needed.
type Policy struct {
	// Conditions are the match conditions; nil when there are none.
	Conditions *condition.Set
	// Variables are the variables, which all expressions except the conditions may use; nil if
	// there are none.
	Variables *expression.Variables
	// Validations and AuditAnnotations belong to a ValidatingAdmissionPolicy.
	Validations      []Validation
	AuditAnnotations []AuditAnnotation
	// Mutations belong to a MutatingAdmissionPolicy.
	Mutations []Mutation

	spent   spent
	witness expression.Witness
}

// Validation is one validation.
type Validation struct {
	registration.Validation
	// Holds must be true. Says is the messageExpression; nil if there is none.
	Holds *expression.Expression
	Says  *expression.Expression
}

// AuditAnnotation is one audit annotation.
type AuditAnnotation struct {
	Key   string
	Value *expression.Expression
}

// Mutation is one mutation.
type Mutation struct {
	// JSONPatch reports whether the value is a JSON patch rather than an apply configuration.
	JSONPatch bool
	Patch     *expression.Expression
}

// Compile returns a policy, with the expressions of a cache.
func Compile(cache *expression.Cache, e *registration.Entry) *Policy {
	p := e.Policy
	scope := expression.Scope{Params: p.ParamKind != nil, Authorizer: true}
	out := &Policy{Conditions: condition.Compile(cache, scope, e.MatchConditions), spent: newSpent(p)}
	if len(p.Variables) > 0 || mentions(p) {
		list := make([]expression.Variable, len(p.Variables))
		for i, v := range p.Variables {
			list[i] = expression.Variable(v)
		}
		out.Variables = cache.Variables(list, scope)
	}
	// A messageExpression cannot use the authorizer (S16.12).
	message := expression.Scope{Params: scope.Params}
	for _, v := range p.Validations {
		one := Validation{Validation: v, Holds: cache.Expression(v.Expression, scope, out.Variables, expression.Bool)}
		if v.MessageExpression != "" {
			one.Says = cache.Expression(v.MessageExpression, message, out.Variables, expression.Text)
		}
		out.Validations = append(out.Validations, one)
	}
	for _, a := range p.AuditAnnotations {
		out.AuditAnnotations = append(out.AuditAnnotations, AuditAnnotation{a.Key, cache.Expression(a.ValueExpression, scope, out.Variables, expression.TextOrNull)})
	}
	patches := scope
	patches.Patches = true
	for _, m := range p.Mutations {
		result := expression.ApplyConfiguration
		if m.JSONPatch {
			result = expression.JSONPatch
		}
		out.Mutations = append(out.Mutations, Mutation{m.JSONPatch, cache.Expression(m.Expression, patches, out.Variables, result)})
	}
	return out
}

// Watch sets the witness of the policy's evaluations. Call it before the policy is used.
func (p *Policy) Watch(w expression.Witness) {
	p.witness = w
	p.Conditions.Watch(w)
}

// mentions reports whether an expression of a policy may use the variable variables.
func mentions(p *registration.Policy) bool {
	const name = "variables"
	for _, v := range p.Validations {
		if strings.Contains(v.Expression, name) || strings.Contains(v.MessageExpression, name) {
			return true
		}
	}
	return slices.ContainsFunc(p.AuditAnnotations, func(a registration.AuditAnnotation) bool { return strings.Contains(a.ValueExpression, name) }) ||
		slices.ContainsFunc(p.Mutations, func(m registration.Mutation) bool { return strings.Contains(m.Expression, name) })
}

// Problem is an expression of a policy that does not compile.
type Problem struct {
	// Field is the path of the expression in the policy.
	Field string
	Err   error
}

// Problems returns the expressions that do not compile, in the order of the fields.
func (p *Policy) Problems() []Problem {
	var list []Problem
	add := func(field string, e *expression.Expression, _ *expression.Most) {
		if err := e.Err(); err != nil {
			list = append(list, Problem{field, err})
		}
	}
	p.conditions(add)
	variables := p.Variables.Errors()
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		list = append(list, Problem{fmt.Sprintf("spec.variables[%s].expression", name), variables[name]})
	}
	p.otherExpressions(add)
	return list
}

// Input has the request and the param for one evaluation of a policy.
type Input struct {
	// Request has the request in the kind that matched; policies that matched the same
	// kind share it.
	Request *expression.Values
	// Own is the resource of the request, and Matched the resource that the policy's rules matched
	// (S16.5).
	Own, Matched schema.GroupVersionResource
	// Params is nil if the policy has none, or the binding refers to none.
	Params runtime.Object
}

// Match evaluates the match conditions.
func (p *Policy) Match(ctx context.Context, in *Input) condition.Result {
	return p.Conditions.Eval(ctx, in.Request, in.Own, in.Params)
}

// Run starts a run of expressions with all declarations of a policy, for validations and mutations.
func (p *Policy) Run(ctx context.Context, in *Input) *expression.Run {
	return in.Request.NewRun(ctx, p.options(in, true))
}

func (p *Policy) options(in *Input, authorizer bool) expression.Options {
	return expression.Options{
		Resource: in.Matched, Namespace: true, Authorizer: authorizer, Params: in.Params, Variables: p.Variables,
		Budget: expression.RunBudget, Witness: p.witness,
	}
}

// Cost limits in CEL cost units: of a whole evaluation without its conditions, and of each
// expression.
const (
	CostLimit           = expression.RunBudget
	ExpressionCostLimit = expression.PerExpression
)
