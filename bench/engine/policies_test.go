package engine

import (
	"context"
	"fmt"
	"testing"
	"time"

	registrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/gatehouse-dev/gatehouse/bench/internal/sides"
)

// policySides are the plugins of validating policies.
var policySides = []struct {
	name string
	make func(context.Context, sides.PolicyOptions) (admission.ValidationInterface, error)
}{{"upstream", sides.UpstreamValidatingPolicies}, {"gatehouse", sides.GatehouseValidatingPolicies}}

// judged returns a policy for the creation of a resource.
func judged(name, group, resource, expression string) *registrationv1.ValidatingAdmissionPolicy {
	p := &registrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u", ResourceVersion: "1"}}
	equivalent, fail, scope := registrationv1.Equivalent, registrationv1.Fail, registrationv1.AllScopes
	p.Spec = registrationv1.ValidatingAdmissionPolicySpec{
		FailurePolicy: &fail, Validations: []registrationv1.Validation{{Expression: expression}},
		MatchConstraints: &registrationv1.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{}, MatchPolicy: &equivalent,
			ResourceRules: []registrationv1.NamedRuleWithOperations{{RuleWithOperations: registrationv1.RuleWithOperations{
				Operations: []registrationv1.OperationType{registrationv1.Create},
				Rule:       registrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: []string{resource}, Scope: &scope},
			}}},
		},
	}
	return p
}

func bound(name, policy string) *registrationv1.ValidatingAdmissionPolicyBinding {
	return &registrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u", ResourceVersion: "1"},
		Spec:       registrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: policy, ValidationActions: []registrationv1.ValidationAction{registrationv1.Deny}},
	}
}

// BenchmarkPolicies evaluates the creation of a ConfigMap with validating policies: one with many bindings, one with
// many params, and many for other resources.
func BenchmarkPolicies(b *testing.B) {
	const expression = "object.metadata.name.size() < 100 && object.data.all(k, k.size() < 100)"
	type policies struct {
		name                     string
		bindings, params, others int
	}
	for _, p := range []policies{
		{name: "none"}, {name: "bindings=1", bindings: 1}, {name: "bindings=64", bindings: 64}, {name: "bindings=256", bindings: 256},
		{name: "bindings=1024", bindings: 1024}, {name: "params=1000", params: 1000}, {name: "others=1000", others: 1000}, {name: "others=10000", others: 10000},
	} {
		o := sides.PolicyOptions{
			Namespaces: []*corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "default"}}},
			Kinds:      []sides.ParamKind{{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Secret"), Resource: "secrets", Namespaced: true}},
			Authorizer: authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
				return authorizer.DecisionAllow, "", nil
			}),
		}
		if p.bindings > 0 {
			o.Policies = append(o.Policies, judged("bound", "", "configmaps", expression))
		}
		for i := range p.bindings {
			o.Policies = append(o.Policies, bound(fmt.Sprintf("bound-%d", i), "bound"))
		}
		if p.params > 0 {
			with := judged("params", "", "configmaps", expression+" && params.metadata.name != object.metadata.name")
			with.Spec.ParamKind = &registrationv1.ParamKind{APIVersion: "v1", Kind: "Secret"}
			deny, binding := registrationv1.DenyAction, bound("params", "params")
			binding.Spec.ParamRef = &registrationv1.ParamRef{Selector: &metav1.LabelSelector{}, Namespace: "default", ParameterNotFoundAction: &deny}
			o.Policies = append(o.Policies, with, binding)
		}
		for i := range p.params {
			s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("param-%d", i), Namespace: "default"}}
			s.SetGroupVersionKind(o.Kinds[0].GroupVersionKind)
			o.Params = append(o.Params, s)
		}
		for i := range p.others {
			name := fmt.Sprintf("other-%d", i)
			o.Policies = append(o.Policies, runtime.Object(judged(name, "apps", "deployments", fmt.Sprintf("object.spec.replicas <= %d", i))), bound(name, name))
		}
		for _, side := range policySides {
			if p.others > 1000 && side.name == "upstream" {
				// Upstream would compile for minutes, and need 4 GiB.
				continue
			}
			b.Run(fmt.Sprintf("%s/side=%s", p.name, side.name), func(b *testing.B) {
				ctx, cancel := context.WithCancel(b.Context())
				defer cancel()
				plugin, err := side.make(ctx, o)
				if err != nil {
					b.Fatal(err)
				}
				a, interfaces := attributes(objects[0].object), admission.NewObjectInterfacesFromScheme(legacyscheme.Scheme)
				// Upstream polls policies every second, and their params after that.
				for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
					if err = plugin.Validate(ctx, a, interfaces); err == nil || time.Now().After(deadline) {
						break
					}
				}
				if err != nil {
					b.Fatal(err)
				}
				b.ReportAllocs()
				began, n := cpu(b), 0
				for b.Loop() {
					if err := plugin.Validate(ctx, a, interfaces); err != nil {
						b.Fatal(err)
					}
					n++
				}
				b.ReportMetric((cpu(b)-began).Seconds()/float64(n), "cpu-sec/op")
			})
		}
	}
}
