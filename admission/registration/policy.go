package registration

import (
	"slices"

	v1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/api/admissionregistration/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Policy is the action of validating or mutating an object with CEL expressions.
type Policy struct {
	// ParamKind is the kind of the params in the policy's bindings; nil if the policy has no
	// params. If paramKind cannot be parsed, ParamKindError is set.
	ParamKind      *schema.GroupVersionKind
	ParamKindError error
	// Variables are available to later variables and to all other expressions except match
	// conditions (S16.10).
	Variables []Variable
	// Validations and AuditAnnotations belong to a ValidatingAdmissionPolicy.
	Validations      []Validation
	AuditAnnotations []AuditAnnotation
	// Mutations belong to a MutatingAdmissionPolicy, in order.
	Mutations []Mutation
	// Reinvoked is reinvocationPolicy IfNeeded; MutatingPolicies only.
	Reinvoked bool
}

// Variable is a named expression.
type Variable struct {
	Name       string
	Expression string
}

// Validation is an expression that must be true.
type Validation struct {
	Expression string
	// Message is empty if there is none.
	Message string
	// MessageExpression is empty if there is none.
	MessageExpression string
	// Reason is the reason of the rejection; it is never empty (S17.8).
	Reason metav1.StatusReason
}

// AuditAnnotation is an expression whose value is written to the audit event.
type AuditAnnotation struct {
	Key             string
	ValueExpression string
}

// Mutation is an expression that returns a change of the object.
type Mutation struct {
	// JSONPatch reports whether the value is a list of JSON patch operations. Otherwise the
	// value is an apply configuration.
	JSONPatch  bool
	Expression string
}

// Binding is the activation of a policy.
type Binding struct {
	// PolicyName is the name of the policy.
	PolicyName string
	// ParamRef selects the params of the policy; nil if there are none.
	ParamRef *ParamRef
	// Actions are the actions after a violation, in order; ValidatingBindings only.
	Actions []v1.ValidationAction
}

// ParamRef selects params: one by name, or all that a selector selects.
type ParamRef struct {
	Name     string
	Selector *metav1.LabelSelector
	// Namespace is the namespace of the params. Empty means the namespace of the request, if
	// the kind is namespaced (S15.4).
	Namespace string
	// DenyMissing reports whether missing params are an error (S15.7).
	DenyMissing bool
}

// IsPolicy reports whether a resource holds admission policies or their bindings. No policy applies
// to them, so that a broken policy can always be repaired (S14.16).
func IsPolicy(resource schema.GroupResource) bool {
	if resource.Group != GroupName {
		return false
	}
	for i := range sources {
		if d := &sources[i]; (d.Policies || d.Binds) && d.Resource == resource.Resource {
			return true
		}
	}
	return false
}

func parseValidatingPolicy(obj runtime.Object) []*Entry {
	c := obj.(*v1.ValidatingAdmissionPolicy)
	e := newPolicy(ValidatingPolicies, &c.ObjectMeta, c.Spec.FailurePolicy, c.Spec.MatchConstraints, c.Spec.MatchConditions, c.Spec.ParamKind, c.Spec.Variables)
	e.Policy.Validations = each(c.Spec.Validations, func(v *v1.Validation) Validation {
		return Validation{Expression: v.Expression, Message: v.Message, MessageExpression: v.MessageExpression, Reason: or(v.Reason, metav1.StatusReasonInvalid)}
	})
	e.Policy.AuditAnnotations = each(c.Spec.AuditAnnotations, func(a *v1.AuditAnnotation) AuditAnnotation { return AuditAnnotation(*a) })
	return []*Entry{e}
}

func parseMutatingPolicy(obj runtime.Object) []*Entry {
	c, ok := obj.(*v1.MutatingAdmissionPolicy)
	if !ok {
		c = recast[*v1.MutatingAdmissionPolicy](obj.(*v1beta1.MutatingAdmissionPolicy))
	}
	e := newPolicy(MutatingPolicies, &c.ObjectMeta, c.Spec.FailurePolicy, c.Spec.MatchConstraints, c.Spec.MatchConditions, c.Spec.ParamKind, c.Spec.Variables)
	e.Policy.Mutations = each(c.Spec.Mutations, func(m *v1.Mutation) Mutation {
		out := Mutation{JSONPatch: m.PatchType == v1.PatchTypeJSONPatch}
		switch {
		case out.JSONPatch && m.JSONPatch != nil:
			out.Expression = m.JSONPatch.Expression
		case !out.JSONPatch && m.ApplyConfiguration != nil:
			out.Expression = m.ApplyConfiguration.Expression
		}
		return out
	})
	e.Policy.Reinvoked = c.Spec.ReinvocationPolicy == v1.IfNeededReinvocationPolicy
	// A deletion never reaches the plugin, regardless of the rules (S18.1).
	for _, rules := range [][]Rule{e.Rules, e.Exclude} {
		for i := range rules {
			rules[i].Operations = changing(rules[i].Operations)
		}
	}
	return inOrder(&c.ObjectMeta, []*Entry{e})
}

// changing returns the operations of a list without deletions, which have no object to change.
func changing(operations []string) []string {
	if slices.Contains(operations, "*") {
		return []string{"CREATE", "UPDATE", "CONNECT"}
	}
	return slices.DeleteFunc(slices.Clone(operations), func(o string) bool { return o == "DELETE" })
}

func parseValidatingBinding(obj runtime.Object) []*Entry {
	c := obj.(*v1.ValidatingAdmissionPolicyBinding)
	e := newBinding(ValidatingBindings, &c.ObjectMeta, c.Spec.PolicyName, c.Spec.ParamRef, c.Spec.MatchResources)
	e.Binding.Actions = c.Spec.ValidationActions
	return []*Entry{e}
}

func parseMutatingBinding(obj runtime.Object) []*Entry {
	c, ok := obj.(*v1.MutatingAdmissionPolicyBinding)
	if !ok {
		c = recast[*v1.MutatingAdmissionPolicyBinding](obj.(*v1beta1.MutatingAdmissionPolicyBinding))
	}
	return []*Entry{newBinding(MutatingBindings, &c.ObjectMeta, c.Spec.PolicyName, c.Spec.ParamRef, c.Spec.MatchResources)}
}

// newPolicy returns an entry with the common fields of policies. Its Match is never nil: absent
// constraints match nothing.
func newPolicy(source Source, meta *metav1.ObjectMeta, failure *v1.FailurePolicyType, match *v1.MatchResources, conditions []v1.MatchCondition, kind *v1.ParamKind, variables []v1.Variable) *Entry {
	e := soleEntry(source, meta)
	e.Policy = &Policy{Variables: each(variables, func(v *v1.Variable) Variable { return Variable(*v) })}
	e.FailurePolicy = FailurePolicy(or(failure, v1.Fail))
	e.MatchConditions = each(conditions, func(c *v1.MatchCondition) MatchCondition { return MatchCondition(*c) })
	if match != nil {
		e.Match = matching(match, e.MatchConditions)
	}
	if kind != nil {
		gv, err := schema.ParseGroupVersion(kind.APIVersion)
		gvk := gv.WithKind(kind.Kind)
		e.Policy.ParamKind, e.Policy.ParamKindError = &gvk, err
	}
	return e
}

func newBinding(source Source, meta *metav1.ObjectMeta, policy string, ref *v1.ParamRef, match *v1.MatchResources) *Entry {
	e := soleEntry(source, meta)
	e.Binding = &Binding{PolicyName: policy}
	// The policy's failurePolicy applies; a binding has none.
	e.FailurePolicy = Fail
	e.NamespaceSelector, e.ObjectSelector = &metav1.LabelSelector{}, &metav1.LabelSelector{}
	if match != nil {
		e.Match = matching(match, nil)
	}
	if ref != nil {
		e.Binding.ParamRef = &ParamRef{
			Name: ref.Name, Selector: ref.Selector, Namespace: ref.Namespace,
			DenyMissing: or(ref.ParameterNotFoundAction, v1.AllowAction) == v1.DenyAction,
		}
	}
	return e
}

// soleEntry returns the entry of an object that is one entry.
func soleEntry(source Source, meta *metav1.ObjectMeta) *Entry {
	return newEntry(source, meta, 0, "", map[string]int{})
}

// matching returns the Match of a policy or binding.
func matching(m *v1.MatchResources, conditions []MatchCondition) *Match {
	return &Match{
		Rules: each(m.ResourceRules, namedRule), Exclude: each(m.ExcludeResourceRules, namedRule),
		Equivalent:        or(m.MatchPolicy, v1.Exact) == v1.Equivalent,
		NamespaceSelector: m.NamespaceSelector, ObjectSelector: m.ObjectSelector, MatchConditions: conditions,
	}
}

func namedRule(r *v1.NamedRuleWithOperations) Rule {
	return Rule{
		Operations:  each(r.Operations, func(o *v1.OperationType) string { return string(*o) }),
		APIGroups:   r.APIGroups,
		APIVersions: r.APIVersions, Resources: r.Resources, ResourceNames: r.ResourceNames,
		Scope: string(or(r.Scope, v1.AllScopes)),
	}
}
