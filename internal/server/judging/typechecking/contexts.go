package typechecking

import (
	"encoding/json"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
)

// contexts has the types that the expressions of policies see. To make the types is most of the
// work of a check, and many policies that come at once are often about the same kinds. It is
// for one goroutine.
type contexts map[string]*validating.TypeCheckingContext

// mostContexts bounds how many types are remembered.
const mostContexts = 8

// of returns the types that the expressions of a policy see.
func (c *contexts) of(checker *validating.TypeChecker, policy *admissionregistrationv1.ValidatingAdmissionPolicy, builtin func(group string) bool) *validating.TypeCheckingContext {
	key, err := json.Marshal([]any{policy.Spec.MatchConstraints, policy.Spec.ParamKind, policy.Spec.Variables})
	if err != nil || slices.ContainsFunc(groups(policy), func(group string) bool { return !builtin(group) }) {
		return checker.CreateContext(policy)
	}
	if known := (*c)[string(key)]; known != nil {
		return known
	}
	made := checker.CreateContext(policy)
	if *c == nil || len(*c) >= mostContexts {
		*c = contexts{}
	}
	(*c)[string(key)] = made
	return made
}

// warnings returns the type errors of the validations of a policy, with their places.
func warnings(checker *validating.TypeChecker, types *validating.TypeCheckingContext, policy *admissionregistrationv1.ValidatingAdmissionPolicy) []admissionregistrationv1.ExpressionWarning {
	var list []admissionregistrationv1.ExpressionWarning
	check := func(expression string, at *field.Path) {
		if results := checker.CheckExpression(types, expression); len(results) > 0 {
			list = append(list, admissionregistrationv1.ExpressionWarning{FieldRef: at.String(), Warning: results.String()})
		}
	}
	for i, v := range policy.Spec.Validations {
		at := field.NewPath("spec", "validations").Index(i)
		check(v.Expression, at.Child("expression"))
		if v.MessageExpression != "" {
			check(v.MessageExpression, at.Child("messageExpression"))
		}
	}
	return list
}

// TypeErrors returns the type errors of the validations of a policy, which need not be stored.
func (c *Controller) TypeErrors(policy *admissionregistrationv1.ValidatingAdmissionPolicy) []admissionregistrationv1.ExpressionWarning {
	return warnings(&c.checker, c.checker.CreateContext(policy), policy)
}
