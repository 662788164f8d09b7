package snapshot

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

func onPods() []v1.NamedRuleWithOperations {
	return []v1.NamedRuleWithOperations{{RuleWithOperations: v1.RuleWithOperations{
		Operations: []v1.OperationType{"*"}, Rule: v1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
	}}}
}

func meta(name, version string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: version}
}

func validatingPolicy(name, version, expression string) *v1.ValidatingAdmissionPolicy {
	p := &v1.ValidatingAdmissionPolicy{ObjectMeta: meta(name, version), Spec: v1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &v1.MatchResources{ResourceRules: onPods()}, Validations: []v1.Validation{{Expression: expression}},
	}}
	registration.Default(p)
	return p
}

func validatingBinding(name, version, policy string, match *v1.MatchResources) *v1.ValidatingAdmissionPolicyBinding {
	b := &v1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta(name, version), Spec: v1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: policy, MatchResources: match, ValidationActions: []v1.ValidationAction{v1.Deny},
	}}
	registration.Default(b)
	return b
}

func found(s *Snapshot) []string {
	target := Target{Operation: admission.Create, Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Namespaced: true}
	var names []string
	table := s.Table(registration.ValidatingPolicies)
	for _, i := range table.Candidates(nil, &target) {
		names = append(names, table.Entries()[i].Configuration)
	}
	return names
}

func TestPoliciesAreInForceByTheirBindings(t *testing.T) {
	var c Compiler
	dev := &v1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"stage": "dev"}}}
	objects := []runtime.Object{
		validatingPolicy("b", "1", "true"), validatingPolicy("alone", "1", "true"), validatingPolicy("a", "1", "true"),
		validatingBinding("z", "1", "b", nil), validatingBinding("x", "1", "b", nil), validatingBinding("y", "1", "b", dev), validatingBinding("w", "1", "a", dev),
		validatingBinding("lost", "1", "missing", nil),
	}
	s := c.Compile(Registrations{Objects: objects})
	if len(s.Problems) > 0 {
		t.Fatal(s.Problems)
	}
	// S14.18: a policy without a binding is in the table, and no rule finds it.
	if diff := cmp.Diff([]string{"a", "b"}, found(s)); diff != "" {
		t.Errorf("S14.18, S17.2 candidates (-want +got):\n%s", diff)
	}
	policies := s.Entries(registration.ValidatingPolicies)
	if len(policies) != 3 || policies[1].Configuration != "alone" || policies[1].Bindings != nil {
		t.Fatalf("policies: %+v", policies)
	}
	var groups [][]string
	for _, g := range policies[2].Bindings.Groups {
		var names []string
		for _, b := range g.Bindings {
			names = append(names, b.Configuration)
		}
		groups = append(groups, names)
	}
	// Bindings that match the same requests are decided once.
	if diff := cmp.Diff([][]string{{"x", "z"}, {"y"}}, groups); diff != "" {
		t.Errorf("F1 groups (-want +got):\n%s", diff)
	}
	bindings := s.Entries(registration.ValidatingBindings)
	if bindings[0].Configuration != "lost" || s.Bound(bindings[0]) != nil || s.Bound(bindings[1]).Configuration != "a" {
		t.Errorf("S20.9: what bindings refer to: %+v", bindings)
	}

	// Unchanged objects are not compiled again.
	again := c.Compile(Registrations{Objects: append(objects, validatingPolicy("c", "1", "true"))})
	if again.Entries(registration.ValidatingPolicies)[2].Bindings != policies[2].Bindings {
		t.Error("the bindings of a policy were resolved again although nothing about them changed")
	}
	// Equal expressions are shared between policies.
	one := again.Entries(registration.ValidatingPolicies)
	if one[0].Policy.Validations[0].Holds != one[2].Policy.Validations[0].Holds {
		t.Error("F3: the same expression was made twice")
	}
	gone := c.Compile(Registrations{Objects: objects[:3]})
	if got := found(gone); got != nil {
		t.Errorf("S14.18: without bindings, found %v", got)
	}
}
