package engine

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/bench/internal/sides"
)

// namespaceObject is the only namespace.
var namespaceObject = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
	Name: "default", Labels: map[string]string{corev1.LabelMetadataName: "default"},
}}

// made starts the chain of a side with the given configurations, in which every field must be set that a server would
// have defaulted. An observed chain also records the metrics of a server.
func made(ctx context.Context, side sides.Side, registrations []runtime.Object, observed bool) (sides.Chain, error) {
	return side.Make(ctx, sides.Options{
		Registrations: registrations, Namespaces: []*corev1.Namespace{namespaceObject}, Observed: observed,
	})
}

// hook is a webhook to register.
type hook struct {
	mutating       bool
	url            string
	group          string
	resource       string
	reinvokeNeeded bool
}

// register returns configurations of up to a hundred hooks each.
func register(ca []byte, hooks []hook) []runtime.Object {
	const perConfiguration = 100
	var all []runtime.Object
	var m *admissionv1.MutatingWebhookConfiguration
	var v *admissionv1.ValidatingWebhookConfiguration
	for i, h := range hooks {
		w := webhook(ca, i, h)
		if h.mutating {
			if m == nil || len(m.Webhooks) == perConfiguration {
				m = &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metadata(len(all))}
				all = append(all, m)
			}
			m.Webhooks = append(m.Webhooks, w)
			continue
		}
		if v == nil || len(v.Webhooks) == perConfiguration {
			v = &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metadata(len(all))}
			all = append(all, v)
		}
		v.Webhooks = append(v.Webhooks, admissionv1.ValidatingWebhook{
			Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy,
			MatchPolicy: w.MatchPolicy, NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector,
			SideEffects: w.SideEffects, TimeoutSeconds: w.TimeoutSeconds, AdmissionReviewVersions: w.AdmissionReviewVersions,
		})
	}
	return all
}

func metadata(i int) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: fmt.Sprintf("bench-%04d", i), UID: "5a4ee4cc-0000-4000-8000-000000000000", ResourceVersion: "1", Generation: 1,
	}
}

func webhook(ca []byte, i int, h hook) admissionv1.MutatingWebhook {
	fail, equivalent, none := admissionv1.Fail, admissionv1.Equivalent, admissionv1.SideEffectClassNone
	again, scope, timeout := admissionv1.NeverReinvocationPolicy, admissionv1.AllScopes, int32(10)
	if h.reinvokeNeeded {
		again = admissionv1.IfNeededReinvocationPolicy
	}
	return admissionv1.MutatingWebhook{
		Name:         fmt.Sprintf("h%d.bench.gatehouse.dev", i),
		ClientConfig: admissionv1.WebhookClientConfig{URL: &h.url, CABundle: ca},
		Rules: []admissionv1.RuleWithOperations{{
			Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
			Rule:       admissionv1.Rule{APIGroups: []string{h.group}, APIVersions: []string{"v1"}, Resources: []string{h.resource}, Scope: &scope},
		}},
		FailurePolicy: &fail, MatchPolicy: &equivalent, SideEffects: &none, TimeoutSeconds: &timeout,
		NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{},
		AdmissionReviewVersions: []string{"v1"}, ReinvocationPolicy: &again,
	}
}
