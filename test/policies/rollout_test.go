package policies

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// The commands of docs/rollout.md: a policy that warns, then is enforced in some namespaces, then everywhere.
// Each change is active when its response arrives (S28.10), and an explanation shows it (S28.9).
func TestARolloutAsPeopleDoIt(t *testing.T) {
	t.Parallel()
	s := harness.Sole(t)
	policy, err := os.ReadFile("../../examples/rollout/policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	kubectl := s.Kubectl(t, "default")
	kubectl.MustWith(string(policy), "apply", "-f", "-")
	h := s.HTTP(t, nil)
	for _, ns := range []string{"dev", "prod"} {
		h.Must(http.StatusCreated, "POST", "/api/v1/namespaces", `{"metadata":{"name":"`+ns+`","labels":{"stage":"`+ns+`"}}}`)
	}
	gatehouse := func(args ...string) string {
		t.Helper()
		r := harness.Run(t, append(args, "--kubeconfig", s.Kubeconfig)...)
		if r.Code != 0 {
			t.Fatalf("gatehouse %s: %d %s%s", strings.Join(args, " "), r.Code, r.Out, r.Err)
		}
		return r.Out
	}
	create := func(ns, name string) *harness.Response {
		return h.Do("POST", "/api/v1/namespaces/"+ns+"/configmaps", `{"metadata":{"name":"`+name+`"}}`)
	}
	stored := func(name, warning string, namespaces ...string) {
		t.Helper()
		for _, ns := range namespaces {
			r := create(ns, name)
			if r.Code != http.StatusCreated {
				t.Fatalf("%s/%s: %d %v", ns, name, r.Code, r.Body)
			}
			if got := strings.Join(r.Header.Values("Warning"), " "); (got == "") != (warning == "") || !strings.Contains(got, warning) {
				t.Errorf("%s/%s: warnings %q, want %q", ns, name, got, warning)
			}
		}
	}
	rejected := func(name string, namespaces ...string) {
		t.Helper()
		for _, ns := range namespaces {
			if r := create(ns, name).Refusal(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid); !strings.Contains(r.Message, "each ConfigMap needs the label team") {
				t.Errorf("%s/%s: %s", ns, name, r.Message)
			}
		}
	}
	const warning = "Validation failed for ValidatingAdmissionPolicy 'teams' with binding 'teams': each ConfigMap needs the label team"
	stored("warned", warning, "dev", "prod")
	if out := gatehouse("explain", "configmap/warned", "-n", "dev", "--operation", "UPDATE"); !strings.Contains(out, "enforcement Warn") || strings.Contains(out, "would be rejected: the request") {
		t.Errorf("S28.9: %s", out)
	}

	const object = "validatingadmissionpolicy/teams"
	gatehouse("rollout", "set", object, "audit")
	stored("audited", "", "dev", "prod")
	if out := gatehouse("rollout", "set", object, "Warn", "--enforce-in", "stage=dev"); out != "ValidatingAdmissionPolicy/teams: enforced in namespaces with stage=dev, warns in the others\n" {
		t.Errorf("%q", out)
	}
	rejected("parted", "dev")
	stored("parted", warning, "prod")
	gatehouse("rollout", "set", object, "Warn", "--in", "100%") // The old name.
	rejected("shared", "dev", "prod")

	var status struct {
		Items []struct {
			Kind, Name, Enforcement, Rollout string
			Since                            *metav1.Time
			WouldReject                      int
			Namespaces                       []struct {
				Namespace, Example string
				WouldReject        int
			}
		}
	}
	if err := json.Unmarshal([]byte(gatehouse("rollout", "status", "-o", "json")), &status); err != nil {
		t.Fatal(err)
	}
	if len(status.Items) != 1 {
		t.Fatalf("%+v", status)
	}
	one := status.Items[0]
	// Five requests would have been rejected: two with a warning, two with an audit annotation, and one
	// outside the enforced part.
	if one.Kind != "ValidatingAdmissionPolicy" || one.Name != "teams" || one.Enforcement != "Warn" || one.Rollout != "100%" || one.Since == nil || one.WouldReject != 5 ||
		len(one.Namespaces) != 2 || one.Namespaces[0].Namespace != "prod" || one.Namespaces[0].WouldReject != 3 || one.Namespaces[1].WouldReject != 2 ||
		one.Namespaces[0].Example != "each ConfigMap needs the label team" {
		t.Errorf("%+v", one)
	}
	if out := gatehouse("rollout", "status", object); !strings.Contains(out, "100%") || !strings.Contains(out, "prod") {
		t.Errorf("%s", out)
	}
	gatehouse("rollout", "set", object, "Deny")
	rejected("hard", "dev", "prod")

	for _, bad := range speed.Some(t, 2, []struct {
		args []string
		want string
	}{
		{[]string{"set", object, "Block"}, `"Block" is not a mode: use Deny, Warn or Audit`},
		{[]string{"set", object, "Deny", "--enforce-in", "5%"}, "--enforce-in needs the mode Warn or Audit"},
		{[]string{"set", object, "Warn", "--enforce-in", "5%", "--in", "6%"}, "--in is the old name of --enforce-in"},
		{[]string{"set", object, "Warn", "--in", "500%"}, "must be a whole number from 0% to 100%"},
		{[]string{"set", object, "Warn", "--webhook", "a.b.c"}, "must be one mode: this kind has no webhooks to name"},
		{[]string{"set", "pod/x", "Warn"}, `"pod" has no enforcement mode`},
		{[]string{"status", "validating/none"}, `"none" not found`},
	}) {
		r := harness.Run(t, append(append([]string{"rollout"}, bad.args...), "--kubeconfig", s.Kubeconfig)...)
		if r.Code == 0 || !strings.Contains(r.Err, bad.want) {
			t.Errorf("rollout %v: %d %s, want %s", bad.args, r.Code, r.Err, bad.want)
		}
	}
}
