package webhooks

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// The response to the write of a dangerous registration contains a warning. Dangerous webhooks block a
// cluster, or fail on every call (S1.38).
func TestWritersAreWarnedOfDangers(t *testing.T) {
	s := harness.Shared(t)
	h := s.HTTP(t, nil)
	const group = "/apis/admissionregistration.k8s.io/"
	hook := func(resource string, fields map[string]any) string {
		w := map[string]any{
			"name": "pods.policies.example.com", "admissionReviewVersions": []string{"v1"}, "sideEffects": "None",
			"clientConfig": map[string]any{"service": map[string]any{"namespace": "policies", "name": "policies"}},
			"rules":        []any{map[string]any{"apiGroups": []string{""}, "apiVersions": []string{"v1"}, "operations": []string{"CREATE", "DELETE"}, "resources": []string{resource}}},
		}
		for key, value := range fields {
			w[key] = value
		}
		return marshal(t, map[string]any{
			"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
			"metadata": map[string]any{"name": "policies"}, "webhooks": []any{w},
		})
	}
	elsewhere := map[string]any{"matchExpressions": []any{
		map[string]any{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": []string{"kube-system", "policies"}},
	}}
	conditions := []any{map[string]any{"name": "named", "expression": "object.metadata.name != 'x'"}}
	for _, tt := range []struct {
		name string
		path string
		body string
		// want lists the rules in the warnings, in order; empty means no warning.
		want []string
	}{
		{"a webhook that intercepts its own pods and those of the system", "v1/validatingwebhookconfigurations", hook("pods", nil),
			[]string{"self-deadlock", "control-plane-not-exempt"}},
		{"a webhook that spares them", "v1/validatingwebhookconfigurations", hook("pods", map[string]any{"namespaceSelector": elsewhere}), nil},
		{"a webhook that fails open", "v1/validatingwebhookconfigurations", hook("pods", map[string]any{"failurePolicy": "Ignore"}), nil},
		{"a webhook about nodes", "v1/validatingwebhookconfigurations", hook("nodes", nil), []string{"fail-on-nodes"}},
		{"a condition that fails for each deletion", "v1/validatingwebhookconfigurations",
			hook("configmaps", map[string]any{"namespaceSelector": elsewhere, "matchConditions": conditions}), []string{"condition-fails"}},
		{"a policy whose condition fails for each deletion", "v1/validatingadmissionpolicies", marshal(t, map[string]any{
			"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": map[string]any{"name": "policies"},
			"spec": map[string]any{
				"matchConstraints": map[string]any{"resourceRules": []any{map[string]any{
					"apiGroups": []string{""}, "apiVersions": []string{"v1"}, "operations": []string{"DELETE"}, "resources": []string{"configmaps"},
				}}},
				"matchConditions": conditions,
				"validations":     []any{map[string]any{"expression": "oldObject.metadata.name != 'x'"}},
			},
		}), []string{"condition-fails"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := group + tt.path
			if dry := h.Must(201, "POST", path+"?dryRun=All", tt.body).Header.Values("Warning"); len(dry) > 0 {
				t.Errorf("a dry run warns: %q", dry)
			}
			created := h.Must(201, "POST", path, tt.body)
			defer h.Must(200, "DELETE", path+"/policies", "")
			warnings := created.Header.Values("Warning")
			if len(warnings) != len(tt.want) {
				t.Fatalf("%d warnings, want %d: %q", len(warnings), len(tt.want), warnings)
			}
			for i, id := range tt.want {
				if !strings.Contains(warnings[i], "see gatehouse lint --explain "+id+")") {
					t.Errorf("warning %q is not of %s", warnings[i], id)
				}
			}
			// An update returns the same warnings.
			again := h.Must(200, "PATCH", path+"/policies", `{"metadata":{"labels":{"a":"b"}}}`, "Content-Type", "application/merge-patch+json").Header.Values("Warning")
			if strings.Join(again, "\n") != strings.Join(warnings, "\n") {
				t.Errorf("an update warns of %q, the create of %q", again, warnings)
			}
		})
	}
}

func marshal(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
