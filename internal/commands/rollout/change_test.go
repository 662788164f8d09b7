package rollout

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// A change writes the mode of all webhooks, or of one webhook next to the modes of the others. It ends a
// rollout, or begins another one, unless it changes a single webhook.
func TestChangesOfARegistration(t *testing.T) {
	for _, c := range []struct {
		name, old string
		change    Change
		want      string
	}{
		{"warn only", "", Change{Mode: registration.ModeWarn}, `"gatehouse.dev/enforcement":"Warn","gatehouse.dev/rollout":null`},
		{"enforced in a share", "Warn", Change{Mode: registration.ModeWarn, In: "25%"}, `"gatehouse.dev/enforcement":"Warn","gatehouse.dev/rollout":"25%"`},
		{"enforced, which ends the rollout", "Warn", Change{Mode: registration.ModeDeny}, `"gatehouse.dev/enforcement":"Deny","gatehouse.dev/rollout":null`},
		{"the first of its webhooks", "", Change{Mode: registration.ModeAudit, Webhook: "a.example.com"}, `"gatehouse.dev/enforcement":"a.example.com=Audit"`},
		{"one more of its webhooks", "Warn, b.example.com=Audit,a.example.com=Warn", Change{Mode: registration.ModeDeny, Webhook: "a.example.com"},
			`"gatehouse.dev/enforcement":"Warn,b.example.com=Audit,a.example.com=Deny"`},
	} {
		u := &unstructured.Unstructured{Object: map[string]any{}}
		u.SetResourceVersion("7")
		u.SetAnnotations(map[string]string{registration.EnforcementAnnotation: c.old, registration.RolloutAnnotation: "10%"})
		want := `{"metadata":{"annotations":{` + c.want + `},"resourceVersion":"7"}}`
		if got, err := c.change.Patch(u); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v, want %s", c.name, got, err, want)
		}
	}
	for text, want := range map[string]registration.Mode{"deny": registration.ModeDeny, "Warn": registration.ModeWarn, "AUDIT": registration.ModeAudit, "soft": ""} {
		if got, err := ParseMode(text); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v", text, got, err)
		}
	}
}

// The text after a change names both parts of the namespaces.
func TestDescribe(t *testing.T) {
	for _, c := range []struct{ mode, part, want string }{
		{"", "", "enforced"},
		{"Deny", "", "enforced"},
		{"Warn", "", "warns only"},
		{"Audit", "", "audits only"},
		{"Warn", "25%", "enforced in 25 % of the namespaces, warns in the others"},
		{"Audit", "stage in (dev, test)", "enforced in namespaces with stage in (dev, test), audits in the others"},
		{"Warn,a.example.com=Audit", "", "enforcement Warn,a.example.com=Audit"},
		{"Warn,a.example.com=Audit", "5%", "enforced in 5 % of the namespaces, enforcement Warn,a.example.com=Audit in the others"},
	} {
		annotations := map[string]string{registration.EnforcementAnnotation: c.mode, registration.RolloutAnnotation: c.part}
		if got := Describe(annotations); got != c.want {
			t.Errorf("%s, %s: %q, want %q", c.mode, c.part, got, c.want)
		}
	}
}
