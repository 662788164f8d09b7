package admission

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
)

// validations are like conditions, but more often true.
var validations = append([]string{
	`true`, `true`, `true`, `true`, `variables.v`, `namespaceObject == null || namespaceObject.metadata.name == request.namespace`,
}, conditions...)

// paramsOfSets are the params of random policies.
var paramsOfSets = func() (list randomParams) {
	for _, name := range []string{"one", "two", "three"} {
		u := &unstructured.Unstructured{}
		u.SetAPIVersion("v1")
		u.SetKind("ConfigMap")
		u.SetNamespace("shop")
		u.SetName(name)
		u.SetLabels(map[string]string{"team": "red"})
		u.Object["data"] = map[string]any{"most": fmt.Sprint(len(name))}
		list = append(list, u)
	}
	u := &unstructured.Unstructured{}
	u.SetAPIVersion("example.com/v1")
	u.SetKind("Limit")
	u.SetName("one")
	return append(list, u)
}()

func (r random) named() []v1.NamedRuleWithOperations {
	var rules []v1.NamedRuleWithOperations
	for _, rule := range r.rules() {
		named := v1.NamedRuleWithOperations{RuleWithOperations: rule}
		if r.in(6) {
			named.ResourceNames = []string{pick(r, "web", "shop", "other")}
		}
		rules = append(rules, named)
	}
	return rules
}

func (r random) match() *v1.MatchResources {
	m := &v1.MatchResources{
		ResourceRules: r.named(), NamespaceSelector: r.selector(), ObjectSelector: r.selector(),
		MatchPolicy: maybe(r, 4, pick(r, v1.Equivalent, v1.Equivalent, v1.Exact)),
	}
	if r.in(4) {
		m.ExcludeResourceRules = r.named()
	}
	return m
}

// policies returns ValidatingAdmissionPolicies with bindings, some of them without a policy.
func (r random) policies() []runtime.Object {
	var list []runtime.Object
	names := []string{"p", "q", "r"}
	for _, name := range names {
		if r.in(3) {
			continue
		}
		p := &v1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
		s := &p.Spec
		s.FailurePolicy, s.MatchConstraints, s.MatchConditions = maybe(r, 4, pick(r, v1.Fail, v1.Ignore, v1.Ignore)), r.match(), r.conditions()
		s.Variables = []v1.Variable{{Name: "v", Expression: pick(r, validations[:4]...)}}
		if r.in(3) {
			s.ParamKind = &v1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
			if r.in(3) {
				s.ParamKind = &v1.ParamKind{APIVersion: "example.com/v1", Kind: pick(r, "Limit", "Nothing")}
			}
		}
		for range 1 + r.IntN(2) {
			v := v1.Validation{Expression: pick(r, validations...), Reason: maybe(r, 2, pick(r, metav1.StatusReasonForbidden, metav1.StatusReasonRequestEntityTooLarge))}
			if r.in(2) {
				v.MessageExpression = pick(r, `"about " + request.name`, `object.none`, `""`)
			}
			s.Validations = append(s.Validations, v)
		}
		if r.in(4) {
			s.AuditAnnotations = []v1.AuditAnnotation{{Key: "k", ValueExpression: pick(r, `request.operation`, `null`, `object.none + ""`)}}
		}
		registration.Default(p)
		list = append(list, p)
	}
	for i := range r.IntN(6) {
		b := &v1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("b%d", i)}}
		b.Spec.PolicyName = pick(r, append(names, "nothing")...)
		b.Spec.ValidationActions = pick(r, []v1.ValidationAction{v1.Deny}, []v1.ValidationAction{v1.Warn}, []v1.ValidationAction{v1.Audit, v1.Deny}, []v1.ValidationAction{v1.Audit})
		if r.in(3) {
			b.Spec.MatchResources = r.match()
		}
		if r.in(2) {
			b.Spec.ParamRef = &v1.ParamRef{ParameterNotFoundAction: maybe(r, 3, pick(r, v1.AllowAction, v1.DenyAction)), Namespace: pick(r, "", "shop")}
			if r.in(2) {
				b.Spec.ParamRef.Name = pick(r, "one", "two", "missing")
			} else {
				b.Spec.ParamRef.Selector = r.selector()
				if b.Spec.ParamRef.Selector == nil {
					b.Spec.ParamRef.Selector = &metav1.LabelSelector{}
				}
			}
		}
		registration.Default(b)
		list = append(list, b)
	}
	return list
}

// mutations are expressions of mutating policies. They give the same result in every evaluation, so
// that a second round changes nothing more.
var mutations = []v1.Mutation{
	labelling("mutated", "'yes'"), labelling("mutated", "request.operation"), labelling("team", "'red'"), labelling("team", "'blue'"),
	labelling("param", "string(has(object.metadata.name))"), labelling("bad", "object.none"), applying("Object{none: 1}"),
	patching(`[JSONPatch{op: "add", path: "/metadata/annotations", value: {"patched": "yes"}}]`),
	patching(`[JSONPatch{op: "remove", path: "/none"}]`), patching(`[JSONPatch{op: "test", path: "/kind", value: "None"}]`),
	patching(`[JSONPatch{op: "add", path: "/none", value: 1}]`),
}

// mutatingPolicies returns MutatingAdmissionPolicies with bindings.
func (r random) mutatingPolicies() []runtime.Object {
	var list []runtime.Object
	names := []string{"m", "n", "o"}
	for _, name := range names {
		if r.in(3) {
			continue
		}
		p := &v1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
		s := &p.Spec
		s.FailurePolicy, s.MatchConstraints, s.MatchConditions = maybe(r, 4, pick(r, v1.Fail, v1.Ignore, v1.Ignore)), r.match(), r.conditions()
		s.ReinvocationPolicy = v1.NeverReinvocationPolicy
		if r.in(3) {
			s.ParamKind = &v1.ParamKind{APIVersion: "v1", Kind: pick(r, "ConfigMap", "ConfigMap", "Nothing")}
		}
		for range 1 + r.IntN(3) {
			s.Mutations = append(s.Mutations, pick(r, mutations...))
		}
		if r.in(2) {
			s.Mutations, s.ReinvocationPolicy = mutations[:1], v1.IfNeededReinvocationPolicy
		}
		registration.Default(p)
		list = append(list, p)
	}
	for i := range r.IntN(5) {
		b := &v1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("b%d", i)}}
		b.Spec.PolicyName = pick(r, append(names, "nothing")...)
		if r.in(3) {
			b.Spec.MatchResources = r.match()
		}
		if r.in(2) {
			b.Spec.ParamRef = &v1.ParamRef{ParameterNotFoundAction: new(pick(r, v1.AllowAction, v1.DenyAction)), Namespace: pick(r, "", "shop")}
			if r.in(2) {
				b.Spec.ParamRef.Name = pick(r, "one", "two", "missing")
			} else {
				b.Spec.ParamRef.Selector = &metav1.LabelSelector{}
			}
		}
		registration.Default(b)
		list = append(list, b)
	}
	return list
}

// foretold returns the evaluated policies of a plan, and the policies that cannot be evaluated.
func foretold(steps []plan.Step) []string {
	var out []string
	for i := range steps {
		s := &steps[i]
		if len(s.Evaluations) == 0 && len(s.Consequences) == 0 {
			continue
		}
		var b strings.Builder
		fmt.Fprint(&b, s.Entry)
		for _, e := range s.Evaluations {
			fmt.Fprintf(&b, "; %s for %v costs %d, condition %q", e.Param, e.Bindings, e.Cost, e.FalseCondition)
			for _, v := range e.Validations {
				fmt.Fprintf(&b, ", %s %q", v.Verdict, v.Message)
			}
			for _, m := range e.Mutations {
				fmt.Fprintf(&b, ", %s %d %t %s %q", m.Type, m.Index, m.Verdict == "changed", m.Patch, m.Message)
			}
		}
		for _, c := range s.Consequences {
			fmt.Fprintf(&b, "; %s %s: %s %s %v %v %v", c.Binding, c.Param, c.Code, c.Message, c.Actions, c.Denied, c.Ignored)
		}
		out = append(out, b.String())
	}
	return out
}

// evaluated returns the same from a trace.
func evaluated(t *trace.Trace) []string {
	param := func(p *trace.Param) string {
		if p == nil {
			return ""
		}
		return p.String()
	}
	var out []string
	for _, run := range foreseen(t) {
		for _, j := range run.Judgements {
			var b strings.Builder
			fmt.Fprint(&b, &j.Policy)
			for _, e := range j.Evaluations {
				fmt.Fprintf(&b, "; %s for %v costs %d, condition %q", param(e.Param), e.Bindings, e.Cost, e.False)
				for _, v := range e.Validations {
					fmt.Fprintf(&b, ", %s %q", v.Verdict(), v.Message)
				}
				for _, m := range e.Mutations {
					message := ""
					if m.Err != nil {
						message = m.Err.Error()
					}
					fmt.Fprintf(&b, ", %s %d %t %s %q", m.Type, m.Index, m.Changed, append(m.Patch, m.WouldPatch...), message)
				}
			}
			for _, c := range j.Consequences {
				fmt.Fprintf(&b, "; %s %s: %s %s %v %v %v", c.Binding, param(c.Param), c.Code, c.Message, c.Actions, c.Denied, c.Forgiven)
			}
			out = append(out, b.String())
		}
	}
	return out
}
