package lint

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

// manyRegistrations returns n webhooks in configurations of ten, and n policies with a binding
// each. A tenth of the webhooks matches pods, and all expressions differ.
func manyRegistrations(tb testing.TB, n int) []runtime.Object {
	var list []runtime.Object
	resources := []string{"configmaps", "secrets", "services", "pods", "serviceaccounts", "endpoints", "persistentvolumeclaims", "limitranges", "resourcequotas", "replicationcontrollers"}
	rules := func(i int) v1.RuleWithOperations {
		return v1.RuleWithOperations{
			Operations: []v1.OperationType{v1.Create, v1.Update},
			Rule:       v1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{resources[i%len(resources)]}},
		}
	}
	fail, none := v1.Fail, v1.SideEffectClassNone
	for c := range n / 10 {
		obj := &v1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("hooks-%d", c)}}
		for i := range 10 {
			server := fmt.Sprintf("server-%d", c%50)
			obj.Webhooks = append(obj.Webhooks, v1.ValidatingWebhook{
				Name: fmt.Sprintf("w%d.example.com", i), FailurePolicy: &fail, SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
				ClientConfig: v1.WebhookClientConfig{Service: &v1.ServiceReference{Namespace: server, Name: server}},
				Rules:        []v1.RuleWithOperations{rules(i)},
				NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
					{Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"kube-system", server}},
				}},
				MatchConditions: []v1.MatchCondition{{Name: "named", Expression: fmt.Sprintf("object.metadata.name != 'c%d-%d' && !('system:nodes' in request.userInfo.groups)", c, i)}},
			})
		}
		registration.Default(obj)
		list = append(list, obj)
	}
	for i := range n {
		name := fmt.Sprintf("policy-%d", i)
		p := &v1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &v1.MatchResources{ResourceRules: []v1.NamedRuleWithOperations{{RuleWithOperations: rules(i)}}},
			Validations:      []v1.Validation{{Expression: fmt.Sprintf("object.metadata.name != 'p%d' && (!has(object.metadata.labels) || object.metadata.labels.all(k, k != 'x'))", i)}},
		}}
		b := &v1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []v1.ValidationAction{v1.Deny},
		}}
		registration.Default(p)
		registration.Default(b)
		list = append(list, p, b)
	}
	return list
}

// someResources are the resources of the core group that the registrations match, and some that the
// rules need.
func someResources() []Resource {
	var list []Resource
	for resource, kind := range map[string]string{
		"configmaps": "ConfigMap", "secrets": "Secret", "services": "Service", "pods": "Pod", "serviceaccounts": "ServiceAccount", "endpoints": "Endpoints",
		"persistentvolumeclaims": "PersistentVolumeClaim", "limitranges": "LimitRange", "resourcequotas": "ResourceQuota", "replicationcontrollers": "ReplicationController",
	} {
		gv := schema.GroupVersion{Version: "v1"}
		list = append(list, Resource{GroupVersionResource: gv.WithResource(resource), Kind: gv.WithKind(kind), Namespaced: true})
	}
	return list
}

// BenchmarkCheck compiles and checks 5,000 webhooks and 5,000 policies, each with an expression of
// its own.
func BenchmarkCheck(b *testing.B) {
	const n = 5000
	objects := manyRegistrations(b, n)
	b.ReportAllocs()
	for b.Loop() {
		w := &Input{Snapshot: snapshot.Compile(snapshot.Registrations{Objects: objects}), Now: time.Now(), Partial: true, Resources: someResources()}
		if webhooks, policies, _ := w.Count(); webhooks != n || policies != n {
			b.Fatalf("%d webhooks, %d policies", webhooks, policies)
		}
		r := Check(b.Context(), w, Options{})
		if len(r.Checked) != len(Rules()) || r.Count(Error) == 0 {
			b.Fatalf("%d rules, %d errors", len(r.Checked), r.Count(Error))
		}
	}
}
