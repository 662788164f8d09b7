package webhooks

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// withoutPolicies are the flags of a server that enforces nothing except mutating webhooks.
var withoutPolicies = []string{"--admission-control", "NamespaceLifecycle,MutatingAdmissionWebhook"}

// TestRegistrationsThatNothingEnforces verifies that the response to a write contains a warning if the plugin
// of a registration does not run (S9.6, S9.7, S11.3).
func TestRegistrationsThatNothingEnforces(t *testing.T) {
	t.Parallel()
	s := harness.Sole(t, withoutPolicies...)
	h := s.HTTP(t, nil)
	type kind struct {
		version, kind string
		off           bool
	}
	for _, c := range append(speed.Some(t, 1, []kind{
		{"v1", mutating, false},
		{"v1beta1", mutating, false},
	}), speed.Some(t, 1, []kind{
		{"v1", validating, true},
		{"v1beta1", validating, true},
		{"v1alpha1", "ExternalAdmissionHookConfiguration", true},
		{"v1alpha1", "InitializerConfiguration", true},
	})...) {
		t.Run(c.version+" "+c.kind, func(t *testing.T) {
			h := s.HTTP(t, nil)
			resource := strings.ToLower(c.kind) + "s"
			name := strings.ToLower(c.kind) + "-" + c.version
			path := registrationsPath(c.version, c.kind)
			created := h.Must(http.StatusCreated, "POST", path, fmt.Sprintf(`{"metadata":{"name":%q}}`, name))
			warned := strings.Contains(strings.Join(created.Header.Values("Warning"), " "),
				resource+" are stored, but this server does not enforce them: their admission plugin is off")
			want(t, "warned", warned, c.off)

			wait := func(flags ...string) harness.Result {
				return harness.Run(t, append([]string{"wait-in-force", c.kind + "/" + name, "--kubeconfig", s.Kubeconfig}, flags...)...)
			}
			state := "/apis/gatehouse.dev/v1alpha1/registrationstates/" + resource + "." + name
			if c.off {
				got := h.Get(state)
				want(t, "in force", got.At("inForce"), any(false))
				want(t, "off", got.At("replicas", "0", "off"), any(true))
				want(t, "version enforced", got.Text("replicas", "0", "resourceVersion"), "")
				r := wait("--timeout", "1s")
				want(t, "exit code of wait-in-force", r.Code, 1)
				in(t, "wait-in-force", r.Err, "not yet active on ", ", which enforces none of its kind")
			} else {
				want(t, "exit code of wait-in-force", wait().Code, 0)
				want(t, "off", h.Get(state).At("replicas", "0", "off"), nil)
			}
			h.Must(http.StatusOK, "DELETE", path+"/"+name, "")
			want(t, "exit code of wait-in-force --deleted", wait("--deleted").Code, 0)
		})
	}
	// The registration has indeed no effect.
	h.Must(http.StatusCreated, "POST", registrationsPath("v1alpha1", "InitializerConfiguration"), toJSON(`{metadata: {name: all}, initializers: [
		{name: all.example.com, rules: [{apiGroups: ["*"], apiVersions: ["*"], resources: ["*"]}]}]}`))
	if r := h.Must(http.StatusCreated, "POST", configMaps("default")+including, configMap("c")); pending(r.Body) != "none" {
		t.Errorf("S11.3 pending %s", pending(r.Body))
	}
}
