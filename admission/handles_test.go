package admission

import (
	"testing"

	apiadmission "k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
)

// TestPluginsHandle proves S9.5: the operations that each plugin handles.
func TestPluginsHandle(t *testing.T) {
	all := []apiadmission.Operation{apiadmission.Create, apiadmission.Update, apiadmission.Delete, apiadmission.Connect}
	for _, test := range []struct {
		name   string
		plugin apiadmission.Interface
		want   map[apiadmission.Operation]bool
	}{
		{MutatingWebhookName, &mutatingPlugin{}, map[apiadmission.Operation]bool{apiadmission.Create: true, apiadmission.Update: true, apiadmission.Delete: true, apiadmission.Connect: true}},
		{ValidatingWebhookName, &validatingPlugin{}, map[apiadmission.Operation]bool{apiadmission.Create: true, apiadmission.Update: true, apiadmission.Delete: true, apiadmission.Connect: true}},
		{GenericWebhookName, new(Engine).ExternalHooks(), map[apiadmission.Operation]bool{apiadmission.Create: true, apiadmission.Update: true, apiadmission.Delete: true, apiadmission.Connect: true}},
		{MutatingPolicyName, &mutatingPlugin{judging{source: registration.MutatingPolicies}}, map[apiadmission.Operation]bool{apiadmission.Create: true, apiadmission.Update: true, apiadmission.Connect: true}},
		{ValidatingPolicyName, &validatingPlugin{judging{source: registration.ValidatingPolicies}}, map[apiadmission.Operation]bool{apiadmission.Create: true, apiadmission.Update: true, apiadmission.Delete: true, apiadmission.Connect: true}},
		{InitializersName, initializers.New(initializers.Options{}), map[apiadmission.Operation]bool{apiadmission.Create: true, apiadmission.Update: true}},
	} {
		for _, operation := range all {
			if got := test.plugin.Handles(operation); got != test.want[operation] {
				t.Errorf("%s handles %s: %v, want %v", test.name, operation, got, test.want[operation])
			}
		}
	}
}
