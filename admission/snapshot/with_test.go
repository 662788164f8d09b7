package snapshot

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

func tried(name, expression string) *v1.ValidatingAdmissionPolicy {
	p := &v1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &v1.MatchResources{ResourceRules: []v1.NamedRuleWithOperations{{RuleWithOperations: v1.RuleWithOperations{
			Operations: []v1.OperationType{"CREATE"}, Rule: v1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
		}}}},
		Validations: []v1.Validation{{Expression: expression}},
	}}
	registration.Default(p)
	return p
}

func triedBinding(name, policy string) *v1.ValidatingAdmissionPolicyBinding {
	b := &v1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.ValidatingAdmissionPolicyBindingSpec{PolicyName: policy, ValidationActions: []v1.ValidationAction{"Deny"}}}
	registration.Default(b)
	return b
}

// A snapshot with further policies is the same as if they were stored.
func TestWithWhatIsNotStored(t *testing.T) {
	stored := []runtime.Object{configuration("hooks", "", "", "z"), tried("b", "true"), triedBinding("of-b", "b"), tried("d", "true"), triedBinding("of-d", "d"), triedBinding("of-c", "c")}
	describe := func(s *Snapshot) string {
		var b strings.Builder
		table := s.Table(registration.ValidatingPolicies)
		for i, e := range table.Entries() {
			var bound []string
			if e.Bindings != nil {
				for _, one := range e.Bindings.All {
					bound = append(bound, one.Configuration)
				}
			}
			fmt.Fprintf(&b, "%d %d %s %s %v\n", i, e.Position, e.Configuration, e.Entry.Policy.Validations[0].Expression, bound)
		}
		fmt.Fprintln(&b, table.exact.candidates(nil, &Target{Operation: admission.Create, Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Namespaced: true}))
		for _, e := range s.Entries(registration.ValidatingBindings) {
			fmt.Fprintln(&b, e.Configuration, e.Binding.PolicyName)
		}
		fmt.Fprintln(&b, names(s.Entries(registration.Validating)))
		webhooks := s.Table(registration.Validating)
		fmt.Fprintln(&b, webhooks.exact.candidates(nil, &Target{Operation: admission.Create, Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Namespaced: true}))
		return b.String()
	}
	for name, extra := range map[string][]runtime.Object{
		"a policy and its binding":            {tried("a", "false"), triedBinding("of-a", "a")},
		"a policy that has a binding already": {tried("c", "false")},
		"another text of a policy":            {tried("b", "false")},
		"a second binding":                    {triedBinding("too", "b")},
		"a binding that names another policy": {triedBinding("of-d", "b")},
		"a policy that nothing binds":         {tried("z", "false")},
		"webhooks in the place of others":     {configuration("hooks", "", "", "y", "x")},
		"further webhooks":                    {configuration("before", "", "", "y")},
	} {
		t.Run(name, func(t *testing.T) {
			base := Compile(Registrations{Objects: stored})
			was := describe(base)
			all := []runtime.Object{}
			for _, o := range stored {
				replaced := false
				for _, e := range extra {
					replaced = replaced || fmt.Sprintf("%T", o) == fmt.Sprintf("%T", e) && nameOf(o) == nameOf(e)
				}
				if !replaced {
					all = append(all, o)
				}
			}
			if diff := cmp.Diff(describe(Compile(Registrations{Objects: append(all, extra...)})), describe(base.With(extra))); diff != "" {
				t.Errorf("-stored +with:\n%s", diff)
			}
			if diff := cmp.Diff(was, describe(base)); diff != "" {
				t.Errorf("the snapshot itself has changed:\n%s", diff)
			}
		})
	}
}
