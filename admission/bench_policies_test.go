package admission

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// policyFor returns a policy for a resource of the core group, and n bindings.
func policyFor(name, resource, expression string, n int) []runtime.Object {
	p := &v1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &v1.MatchResources{ResourceRules: []v1.NamedRuleWithOperations{{RuleWithOperations: v1.RuleWithOperations{
			Operations: []v1.OperationType{"*"}, Rule: v1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{resource}},
		}}}},
		Validations: []v1.Validation{{Expression: expression}},
	}}
	registration.Default(p)
	list := []runtime.Object{p}
	for i := range n {
		b := &v1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%04d", name, i)}, Spec: v1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []v1.ValidationAction{v1.Deny},
		}}
		registration.Default(b)
		list = append(list, b)
	}
	return list
}

func policyEngine(t testing.TB, objects ...runtime.Object) (*Engine, admission.Attributes) {
	namespaces := scenarioNamespaces{"shop": &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"team": "red"}}}}
	e, err := New(Options{Snapshots: register(objects...), Namespaces: namespaces, Authorizer: alice{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", Labels: map[string]string{"app": "web"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "x"}}}}
	return e, admission.NewAttributesRecord(pod, nil, is("", "v1", "Pod"), "shop", "web", at("", "v1", "pods"), "", admission.Create,
		&metav1.CreateOptions{}, false, &user.DefaultInfo{Name: "alice"})
}

const cheap = "object.spec.containers.all(c, c.image != '') && object.metadata.labels['app'] == 'web'"

// BenchmarkPolicies measures the cost of policies for a create: many without a matching rule, and
// one with many bindings.
func BenchmarkPolicies(b *testing.B) {
	others := func(n int) (list []runtime.Object) {
		for i := range n {
			list = append(list, policyFor(fmt.Sprintf("p%05d", i), "secrets", cheap, 1)...)
		}
		return list
	}
	for _, bb := range []struct {
		name    string
		objects []runtime.Object
	}{
		{"policies=1/matching=0", others(1)},
		{"policies=10000/matching=0", others(10000)},
		{"policies=1/bindings=1", policyFor("p", "pods", cheap, 1)},
		{"policies=1/bindings=1024", policyFor("p", "pods", cheap, 1024)},
	} {
		b.Run(bb.name, func(b *testing.B) {
			e, a := policyEngine(b, bb.objects...)
			plugin := e.ValidatingPolicies()
			b.ReportAllocs()
			for b.Loop() {
				if err := plugin.Validate(b.Context(), a, catalogueInterfaces); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Policies without a matching rule cost nothing, regardless of their number (F2).
func TestPoliciesThatDoNotMatchAllocateNothing(t *testing.T) {
	if randomSets < 10000 {
		t.Skip("the race detector allocates")
	}
	var objects []runtime.Object
	for i := range 1000 {
		objects = append(objects, policyFor(fmt.Sprintf("p%d", i), "secrets", cheap, 2)...)
	}
	e, a := policyEngine(t, objects...)
	plugin := e.ValidatingPolicies()
	if n := testing.AllocsPerRun(100, func() {
		if err := plugin.Validate(t.Context(), a, catalogueInterfaces); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// The bindings of a policy that match the same requests and params form one group, so that the cost
// of a policy does not grow with their number (F1).
func TestManyBindingsAllocateAsOne(t *testing.T) {
	if randomSets < 10000 {
		t.Skip("the race detector allocates")
	}
	allocations := func(bindings int) float64 {
		e, a := policyEngine(t, policyFor("p", "pods", cheap, bindings)...)
		plugin := e.ValidatingPolicies()
		return testing.AllocsPerRun(100, func() {
			if err := plugin.Validate(t.Context(), a, catalogueInterfaces); err != nil {
				t.Fatal(err)
			}
		})
	}
	if one, many := allocations(1), allocations(1024); many > one*1.1+1 {
		t.Errorf("1,024 bindings: %v allocations, one: %v", many, one)
	}
}
