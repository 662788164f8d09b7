package rejection

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A rejection is split into faults, each at the field that the server names.
func TestFaults(t *testing.T) {
	causes := func(list ...metav1.StatusCause) *metav1.StatusDetails { return &metav1.StatusDetails{Causes: list} }
	for _, tc := range []struct {
		name   string
		status metav1.Status
		want   []Violation
	}{
		{"a sentence", metav1.Status{Message: "no"}, []Violation{{Message: "no"}}},
		{"unknown and duplicate fields", metav1.Status{Message: `strict decoding error: unknown field "spec.a", duplicate field "spec.b[\"x\"]"`}, []Violation{
			{Field: "spec.a", Place: "spec.a", Message: "unknown field", Unread: true}, {Field: `spec.b[\"x\"]`, Place: `spec.b[\"x\"]`, Message: "duplicate field", Unread: true},
		}},
		{"a strict decoder that names no field", metav1.Status{Message: "strict decoding error: yaml: line 2"}, []Violation{{Message: "strict decoding error: yaml: line 2"}}},
		{"somebody else speaks of an unknown field", metav1.Status{Message: `unknown field "a"`}, []Violation{{Message: `unknown field "a"`}}},
		{"causes", metav1.Status{Message: "invalid", Details: causes(metav1.StatusCause{Field: "spec.a", Message: "is wrong"}, metav1.StatusCause{Field: "<nil>", Message: "is empty"})}, []Violation{
			{Field: "spec.a", Place: "spec.a", Message: "is wrong"}, {Message: "is empty"},
		}},
		{"causes without a field", metav1.Status{Message: "no", Details: causes(metav1.StatusCause{Message: "part"})}, []Violation{{Message: "no"}}},
		{"a value of the wrong type", metav1.Status{Message: "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32"}, []Violation{
			{Place: "spec.replicas", Message: "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32"},
		}},
	} {
		if got := Faults(&tc.status, nil); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
	}
}
