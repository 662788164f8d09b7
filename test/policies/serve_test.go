package policies

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/harness/engine"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// atMost limits the replicas of deployments to the number in a ConfigMap.
const atMost = `
apiVersion: v1
kind: Namespace
metadata: {name: %[1]s, labels: {stage: %[1]s}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %[1]s.replicas.example.com}
spec:
  failurePolicy: Fail
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints:
    resourceRules:
    - {apiGroups: [apps], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [deployments]}
  variables:
  - {name: most, expression: int(params.data.most)}
  validations:
  - expression: object.metadata.name != '' && object.spec.replicas <= variables.most
    messageExpression: "'at most ' + string(variables.most) + ' replicas, not ' + string(object.spec.replicas)"
    reason: Forbidden
  auditAnnotations:
  - {key: replicas, valueExpression: string(object.spec.replicas)}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %[1]s-binding}
spec:
  policyName: %[1]s.replicas.example.com
  validationActions: [Deny]
  paramRef: {name: limits, parameterNotFoundAction: Deny}
  matchResources: {namespaceSelector: {matchLabels: {stage: %[1]s}}}
`

// A realistic policy with a binding and a param is active from the response to its write on, and explain and
// trace match the actual decisions. Policy scenarios 1, 14 and 15; S15.7, S15.13, S17.15, S20.7, S20.8.
func TestAPolicyAsPeopleWriteIt(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"bounded", "strict"}[:speed.Of(1, 2)] {
		t.Run(mode, func(t *testing.T) {
			var flags []string
			if mode == "strict" {
				flags = []string{"--admission-consistency", mode}
			}
			s := harness.Sole(t, flags...)
			h := s.HTTP(t, nil)
			ns := "shop"
			kubectl := s.Kubectl(t, ns)
			if out := kubectl.MustWith(fmt.Sprintf(atMost, ns), "apply", "-f", "-"); strings.Contains(out, "Warning") {
				t.Errorf("a policy that is enforced was applied with a warning:\n%s", out)
			}
			create := func(name string, replicas int) *harness.Response {
				return h.Do("POST", "/apis/apps/v1/namespaces/"+ns+"/deployments?dryRun=All", fmt.Sprintf(
					`{"metadata":{"name":%q},"spec":{"replicas":%d,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"x"}]}}}}`, name, replicas))
			}
			text := func(message string) string {
				return `deployments.apps "web" is forbidden: ValidatingAdmissionPolicy 'shop.replicas.example.com' with binding 'shop-binding' denied request: ` + message
			}
			// The policy is active as soon as its writer has the response, and its param does not exist yet.
			missing := create("web", 1).Refusal(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
			if want := text("failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"); missing.Message != want {
				t.Errorf("S15.7: %q, want %q", missing.Message, want)
			}

			settle := func() {
				if mode == "bounded" {
					// The test fails if it takes longer.
					time.Sleep(time.Second)
				}
			}
			limits := func(most int) string {
				return fmt.Sprintf(`{"metadata":{"name":"limits"},"data":{"most":"%d"}}`, most)
			}
			h.Must(http.StatusCreated, "POST", configMaps(ns), limits(5))
			settle()
			denied := create("web", 6)
			status := denied.Refusal(http.StatusForbidden, metav1.StatusReasonForbidden)
			if want := text("at most 5 replicas, not 6"); status.Message != want {
				t.Errorf("S17.15: %q, want %q", status.Message, want)
			}
			if n := len(status.Details.Causes); n != 1 || status.Details.Causes[0].Message != strings.TrimPrefix(status.Message, `deployments.apps "web" is forbidden: `) {
				t.Errorf("S17.15: causes %+v", status.Details.Causes)
			}
			if r := create("web", 5); r.Code != http.StatusCreated {
				t.Errorf("5 replicas: %d %s", r.Code, r.Raw)
			}

			// S20.8: the last acknowledged param applies, whichever server acknowledged it.
			for most := range 5 {
				h.Must(http.StatusOK, "PUT", configMaps(ns)+"/limits", limits(10+most))
				settle()
				if got := create("web", 11+most).Refusal(http.StatusForbidden, metav1.StatusReasonForbidden).Message; got != text(fmt.Sprintf("at most %d replicas, not %d", 10+most, 11+most)) {
					t.Errorf("S15.13: after most=%d: %s", 10+most, got)
				}
				if r := create("web", 10+most); r.Code != http.StatusCreated {
					t.Errorf("S15.13: after most=%d: %d %s", 10+most, r.Code, r.Raw)
				}
			}

			// The trace of the denial contains the evaluation.
			found := traceOf(t, h, denied)
			judgements := slices.Collect(engine.RecordOf(t, found).Judged())
			if len(judgements) == 0 || len(judgements[0].Evaluations) == 0 || judgements[0].Evaluations[0].Param == nil {
				t.Fatalf("the trace has no judgement with a param: %s", found.Raw)
			}
			evaluation := judgements[0].Evaluations[0]
			if got := fmt.Sprint(judgements[0].Policy.Configuration, evaluation.Param.Name, evaluation.Bindings); got != "shop.replicas.example.comlimits[shop-binding]" {
				t.Errorf("the trace says %s", got)
			}
			if evaluation.Cost < 1 {
				t.Errorf("the trace says cost %d", evaluation.Cost)
			}
			shown := harness.Run(t, "trace", "--kubeconfig", s.Kubeconfig, "-n", ns, denied.Header.Get("Gatehouse-Trace"))
			for _, want := range []string{"shop.replicas.example.com", "with shop/limits", "violated", "object.spec.replicas <= variables.most", "at most 5 replicas, not 6 (Deny)"} {
				if !strings.Contains(shown.Out, want) {
					t.Errorf("gatehouse trace does not say %q:\n%s%s", want, shown.Out, shown.Err)
				}
			}

			// Explain evaluates the policy and names the failed part.
			object := filepath.Join(t.TempDir(), "web.yaml")
			manifest := kubectl.Must("create", "deployment", "web", "--image=x", "--replicas=99", "--dry-run=client", "-o", "yaml")
			if err := os.WriteFile(object, []byte(manifest), 0o600); err != nil {
				t.Fatal(err)
			}
			explained := harness.Run(t, "explain", "--kubeconfig", s.Kubeconfig, "-n", ns, "-f", object, "--all")
			for _, want := range []string{"reject", text("at most 14 replicas, not 99"), "because this is false: object.spec.replicas <= variables.most", "cost"} {
				if !strings.Contains(explained.Out, want) {
					t.Errorf("gatehouse explain does not say %q:\n%s%s", want, explained.Out, explained.Err)
				}
			}
			if metrics := h.Get("/metrics").Raw; !strings.Contains(string(metrics), `apiserver_validating_admission_policy_check_total{enforcement_action="deny",error_type="invalid_error",policy="shop.replicas.example.com",policy_binding="shop-binding"}`) {
				t.Error("S17.21: the denials are not counted")
			}
			// In other namespaces nothing is evaluated; without the binding, nothing here, either.
			h.Must(http.StatusOK, "DELETE", validatingBindings+"/shop-binding", "")
			if r := create("web", 99); r.Code != http.StatusCreated {
				t.Errorf("S14.18: without a binding: %d %s", r.Code, r.Raw)
			}
		})
	}
}
