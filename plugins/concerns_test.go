package plugins

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apiadmission "k8s.io/apiserver/pkg/admission"
)

func TestConcerns(t *testing.T) {
	p := &Plugin{About: []About{
		{Resource: "pods", Operations: []apiadmission.Operation{apiadmission.Create}},
		{Group: "apps", Resource: "deployments", Subresource: "scale"},
		{Group: wildcard, Resource: "things", Subresource: wildcard, Namespaced: true},
	}}
	for _, tt := range []struct {
		name                                    string
		operation                               apiadmission.Operation
		group, resource, subresource, namespace string
		want                                    bool
	}{
		{"its resource", apiadmission.Create, "", "pods", "", "shop", true},
		{"another operation", apiadmission.Update, "", "pods", "", "shop", false},
		{"a subresource of it", apiadmission.Create, "", "pods", "status", "shop", false},
		{"a resource of that name in another group", apiadmission.Create, "example.com", "pods", "", "shop", false},
		{"its subresource, by any operation", apiadmission.Update, "apps", "deployments", "scale", "shop", true},
		{"the resource of its subresource", apiadmission.Update, "apps", "deployments", "", "shop", false},
		{"any group and subresource, in a namespace", apiadmission.Delete, "example.com", "things", "status", "shop", true},
		{"the same in the cluster", apiadmission.Delete, "example.com", "things", "status", "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			resource := schema.GroupVersionResource{Group: tt.group, Version: "v1", Resource: tt.resource}
			a := apiadmission.NewAttributesRecord(nil, nil, schema.GroupVersionKind{}, tt.namespace, "it", resource, tt.subresource, tt.operation, nil, false, nil)
			if got := p.Concerns(a); got != tt.want {
				t.Errorf("concerned: %v", got)
			}
		})
	}
}
