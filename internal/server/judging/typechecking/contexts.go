package typechecking

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/openapi"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"

	"github.com/gatehouse-dev/gatehouse/internal/engine/expression"
)

// A Checker finds type errors in the expressions of policies.
type Checker struct {
	// Schemas finds the schemas of kinds, Kinds the kinds of resources.
	Schemas resolver.SchemaResolver
	Kinds   meta.ResettableRESTMapper
}

// types are the types that the expressions of a policy see, for each kind.
type types []typesOf

type typesOf struct {
	kind  schema.GroupVersionKind
	typed *expression.Typed
}

// contexts has the types that the expressions of policies see. Making the types is most of the work
// of a check, and many policies that are written together are often about the same kinds. It is for
// one goroutine.
type contexts map[string]*types

// mostContexts bounds the cached types.
const mostContexts = 8

// of returns the types that the expressions of a policy see.
func (c *contexts) of(checker *Checker, policy *admissionregistrationv1.ValidatingAdmissionPolicy, builtin func(group string) bool) *types {
	key, err := json.Marshal([]any{policy.Spec.MatchConstraints, policy.Spec.ParamKind, policy.Spec.Variables})
	if err != nil || slices.ContainsFunc(groups(policy), func(group string) bool { return !builtin(group) }) {
		return checker.types(policy)
	}
	if known := (*c)[string(key)]; known != nil {
		return known
	}
	made := checker.types(policy)
	if *c == nil || len(*c) >= mostContexts {
		*c = contexts{}
	}
	(*c)[string(key)] = made
	return made
}

// types makes the types that the expressions of a policy see. A kind without a schema is left out.
func (c *Checker) types(policy *admissionregistrationv1.ValidatingAdmissionPolicy) *types {
	made := &types{}
	shapes := expression.Shapes{Authorizer: true}
	if p := policy.Spec.ParamKind; p != nil {
		if gv, err := schema.ParseGroupVersion(p.APIVersion); err == nil {
			shapes.HasParams = true
			// Params of a kind without a schema may be anything.
			shapes.Params, _ = c.declared(gv.WithKind(p.Kind), "Params")
		}
	}
	var variables []expression.Variable
	for _, v := range policy.Spec.Variables {
		variables = append(variables, expression.Variable{Name: v.Name, Expression: v.Expression})
	}
	for _, kind := range c.kinds(policy) {
		var err error
		if shapes.Object, err = c.declared(kind, ""); err != nil {
			continue
		}
		if typed, err := expression.NewTyped(shapes, variables); err == nil {
			*made = append(*made, typesOf{kind, typed})
		}
	}
	return made
}

// declared returns the type of a kind by its schema; nil when the schema has no type. suffix keeps
// the types of objects and of params apart.
func (c *Checker) declared(kind schema.GroupVersionKind, suffix string) (*apiservercel.DeclType, error) {
	s, err := c.Schemas.ResolveSchema(kind)
	if err != nil {
		return nil, err
	}
	declared := common.SchemaDeclType(&openapi.Schema{Schema: s}, true)
	if declared == nil {
		return nil, nil
	}
	return declared.MaybeAssignTypeName(kind.Kind + suffix), nil
}

// mostKinds ends the collection of kinds when a rule has this many.
const mostKinds = 10

// kinds returns the kinds that the rules of a policy name, in order (S16.19).
func (c *Checker) kinds(policy *admissionregistrationv1.ValidatingAdmissionPolicy) []schema.GroupVersionKind {
	if policy.Spec.MatchConstraints == nil {
		return nil
	}
	var list []schema.GroupVersionKind
	fresh := false
	named := func(gvr schema.GroupVersionResource) []schema.GroupVersionKind {
		kinds, err := c.Kinds.KindsFor(gvr)
		if err != nil && !fresh {
			fresh = true
			c.Kinds.Reset()
			kinds, _ = c.Kinds.KindsFor(gvr)
		}
		return kinds
	}
collecting:
	for i := range policy.Spec.MatchConstraints.ResourceRules {
		found := 0
		for _, gvr := range product(&policy.Spec.MatchConstraints.ResourceRules[i].Rule) {
			for _, kind := range named(gvr) {
				list = append(list, kind)
				if found++; found == mostKinds {
					break collecting
				}
			}
		}
	}
	slices.SortFunc(list, func(a, b schema.GroupVersionKind) int {
		return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Version, b.Version), strings.Compare(a.Kind, b.Kind))
	})
	return slices.Compact(list)
}

// product returns the resources that a rule names in all its groups and versions; none for a rule
// with any group or version.
func product(rule *admissionregistrationv1.Rule) []schema.GroupVersionResource {
	wild := func(text string) bool { return strings.Contains(text, "*") }
	if slices.ContainsFunc(rule.APIGroups, wild) || slices.ContainsFunc(rule.APIVersions, wild) {
		return nil
	}
	var list []schema.GroupVersionResource
	for _, group := range slices.Sorted(slices.Values(rule.APIGroups)) {
		for _, version := range slices.Sorted(slices.Values(rule.APIVersions)) {
			for _, resource := range slices.Sorted(slices.Values(rule.Resources)) {
				if !strings.ContainsAny(resource, "*/") {
					list = append(list, schema.GroupVersionResource{Group: group, Version: version, Resource: resource})
				}
			}
		}
	}
	return list
}

// warnings returns the type errors of the validations of a policy, with their places (S16.20).
func (t *types) warnings(policy *admissionregistrationv1.ValidatingAdmissionPolicy) []admissionregistrationv1.ExpressionWarning {
	var list []admissionregistrationv1.ExpressionWarning
	check := func(text string, at *field.Path) {
		var messages []string
		for _, of := range *t {
			if wrong := of.typed.Check(text); wrong != "" {
				messages = append(messages, fmt.Sprintf("%v: %s\n", of.kind, wrong))
			}
		}
		if len(messages) > 0 {
			list = append(list, admissionregistrationv1.ExpressionWarning{FieldRef: at.String(), Warning: strings.Join(messages, "\n")})
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

// Check returns the type errors of the validations of a policy, which need not be stored.
func (c *Checker) Check(policy *admissionregistrationv1.ValidatingAdmissionPolicy) []admissionregistrationv1.ExpressionWarning {
	return c.types(policy).warnings(policy)
}

// TypeErrors returns the type errors of the validations of a policy, which need not be stored.
func (c *Controller) TypeErrors(policy *admissionregistrationv1.ValidatingAdmissionPolicy) []admissionregistrationv1.ExpressionWarning {
	return c.checker.Check(policy)
}
