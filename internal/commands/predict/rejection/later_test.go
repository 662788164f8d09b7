package rejection

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/gatehouse-dev/gatehouse/internal/kit/emulation"
)

// CRDs have later fields, too, if they were read from a newer cluster (S26.12).
func TestLaterFieldsOfDefinitions(t *testing.T) {
	definition := func() map[string]any {
		return map[string]any{"status": map[string]any{"observedGeneration": 1, "conditions": []any{map[string]any{"type": "Established", "observedGeneration": 1}}}}
	}
	kind := apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")
	old := emulation.FieldsOf("1.34")
	if later := TakeLater(old, definition(), kind); !cmp.Equal(later, []string{"status.conditions[0].observedGeneration", "status.observedGeneration"}) {
		t.Errorf("fields that 1.34 does not have: %q", later)
	}
	newer := emulation.FieldsOf("1.35")
	if later := TakeLater(newer, definition(), kind); later != nil {
		t.Errorf("fields that 1.35 does not have: %q", later)
	}
}
