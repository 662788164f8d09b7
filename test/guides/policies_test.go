package guides

import (
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// TestTheExamplesOfPoliciesWork applies examples/policies as in docs/policies.md and checks the described
// results, with and without a server.
func TestTheExamplesOfPoliciesWork(t *testing.T) {
	t.Parallel()
	const dir = "../../examples/policies/"
	s := harness.Sole(t)
	kubectl := s.Kubectl(t, "shop")
	if out := kubectl.Must("apply", "-f", dir+"shop.yaml", "-f", dir+"replicas.yaml", "-f", dir+"owner.yaml"); strings.Contains(out, "Warning") {
		t.Errorf("the examples are applied with a warning:\n%s", out)
	}
	const denied = `deployments.apps "web" is forbidden: ValidatingAdmissionPolicy 'replicas.example.com' with binding 'replicas.example.com' denied request: at most 3 replicas, not 5`
	if !strings.Contains(strings.Join(strings.Fields(readDocument(t, "policies.md").text), " "), denied) {
		t.Error("docs/policies.md does not have the message of the rejection")
	}
	h := s.HTTP(t, nil)
	refused := h.Do("POST", "/apis/apps/v1/namespaces/shop/deployments",
		`{"metadata":{"name":"web"},"spec":{"replicas":5,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"x"}]}}}}`)
	if message := refused.Refusal(http.StatusForbidden, metav1.StatusReasonForbidden).Message; message != denied {
		t.Errorf("the message is %q, want %q", message, denied)
	}
	made := h.Must(201, "POST", "/api/v1/namespaces/shop/configmaps", `{"metadata":{"name":"settings"}}`)
	if owner := made.At("metadata", "labels", "owner"); owner != "anna" {
		t.Errorf("the owner is %v, want anna", owner)
	}
	for name, args := range map[string][]string{
		"server": {"--kubeconfig", s.Kubeconfig},
		"files":  {"--registrations", dir, "--as", "anna"},
	} {
		got := harness.Run(t, append([]string{"explain", "-f", dir + "web.yaml"}, args...)...)
		if !strings.Contains(got.Out, "The request would be rejected: "+denied) {
			t.Errorf("%s: the explanation does not say what happens:\n%s%s", name, got.Out, got.Err)
		}
	}
}
