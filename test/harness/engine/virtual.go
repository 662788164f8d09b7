package engine

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/test/harness"
)

const ownPath = "/apis/gatehouse.dev/v1alpha1/"

// VirtualWrites sends every write of the virtual resources that Gatehouse adds to Kubernetes, and fails the
// test if one is rejected (S2.41). It finds the resources in discovery, and also fails for a resource without
// an example here. h needs all rights.
func VirtualWrites(t *testing.T, h *harness.HTTP) {
	t.Helper()
	writes := map[string]func(){
		"admissionexplanations": func() {
			h.Must(http.StatusCreated, "POST", ownPath+"admissionexplanations", `{"spec":{"resource":{"version":"v1","resource":"secrets"},"namespace":"default",
				"object":{"apiVersion":"v1","kind":"Secret","metadata":{"name":"explained"}}}}`)
		},
		"admissionservers": func() {
			const path = ownPath + "admissionservers/virtual"
			for range 2 {
				h.Must(http.StatusCreated, "PUT", path, `{"metadata":{"name":"virtual"},"address":"https://192.0.2.1","lifetimeSeconds":60}`)
				h.Must(http.StatusOK, "PUT", path, `{"metadata":{"name":"virtual"},"address":"https://192.0.2.2","lifetimeSeconds":60}`)
				h.Must(http.StatusOK, "DELETE", path, "")
			}
		},
	}
	for _, one := range h.Get(strings.TrimSuffix(ownPath, "/")).At("resources").([]any) {
		name, _ := harness.At(one, "name").(string)
		verbs, _ := harness.At(one, "verbs").([]any)
		if main, _, _ := strings.Cut(name, "/"); !registration.IsVirtual(schema.GroupResource{Group: registration.OwnGroup, Resource: main}) {
			t.Errorf("S2.41: webhooks, policies and initializers apply to %s.%s", name, registration.OwnGroup)
		}
		write, known := writes[name]
		if !known && slices.ContainsFunc(verbs, func(verb any) bool { return !slices.Contains([]any{"get", "list", "watch"}, verb) }) {
			t.Errorf("this test does not write %s, which has the verbs %v", name, verbs)
		}
		if known {
			write()
			delete(writes, name)
		}
	}
	for name := range writes {
		t.Errorf("the server does not serve %s", name)
	}
}
