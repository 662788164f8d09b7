package plan

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

// BenchmarkNew explains a request among 5,000 webhooks, with the reason for each that does not
// apply. A tenth applies.
func BenchmarkNew(b *testing.B) {
	const configurations, each = 100, 50
	var r snapshot.Registrations
	for i := range configurations {
		var webhooks []any
		for j := range each {
			resource := "deployments"
			if j%10 == 0 {
				resource = "configmaps"
			}
			webhooks = append(webhooks, map[string]any{
				"name": fmt.Sprintf("w%d.example.com", j), "admissionReviewVersions": []any{"v1"}, "sideEffects": "None",
				"clientConfig":    map[string]any{"url": "https://example.com/"},
				"rules":           []any{map[string]any{"apiGroups": []any{"*"}, "apiVersions": []any{"v1"}, "resources": []any{resource}, "operations": []any{"CREATE"}}},
				"matchConditions": []any{map[string]any{"name": "named", "expression": "object.metadata.name != ''"}},
			})
		}
		obj, err := registration.Parse(map[string]any{
			"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
			"metadata": map[string]any{"name": fmt.Sprintf("c%d", i)}, "webhooks": webhooks,
		})
		if err != nil {
			b.Fatal(err)
		}
		r.Objects = append(r.Objects, obj)
	}
	s := snapshot.Compile(r)
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "c", "namespace": "d"}}}
	gv := schema.GroupVersion{Version: "v1"}
	request := &Request{Operation: admission.Create, Resource: gv.WithResource("configmaps"), Kind: gv.WithKind("ConfigMap"), Namespace: "d", Name: "c"}
	links := chain(registration.Mutating, registration.Validating)
	b.ReportAllocs()
	for b.Loop() {
		p := New(b.Context(), links, s, request, nil, &Input{Objects: AsWritten(object, nil)}, true)
		calls := 0
		for i := range p.Steps {
			if p.Steps[i].Effect == Call {
				calls++
			}
		}
		if len(p.Steps) != configurations*each || calls != configurations*each/10 {
			b.Fatalf("%d steps, %d calls", len(p.Steps), calls)
		}
	}
}
