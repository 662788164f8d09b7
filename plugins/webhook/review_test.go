package webhook

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	admissionv1 "k8s.io/api/admission/v1"
	apiadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/warning"
)

// A plugin's warnings and its annotations for the audit log are in the response, by any of the ways to add
// them.
func TestAnswersHaveWarningsAndAuditAnnotations(t *testing.T) {
	r := reviewer{judge: func(ctx context.Context, a apiadmission.Attributes) error {
		warning.AddWarning(ctx, "", "take care")
		audit.AddAuditAnnotations(ctx, "pod-security.kubernetes.io/enforce-policy", "baseline:latest")
		return a.AddAnnotation("imagepolicywebhook.image-policy.k8s.io/failed-open", "true")
	}}
	got := r.answer(t.Context(), &admissionv1.AdmissionRequest{Operation: admissionv1.Delete})
	want := &admissionv1.AdmissionResponse{
		Allowed: true, Warnings: []string{"take care"},
		AuditAnnotations: map[string]string{"enforce-policy": "baseline:latest", "failed-open": "true"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
}
