package plugins

import (
	"net/http"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// TestEscalatingExec applies the example that replaces the plugin DenyEscalatingExec: a policy evaluates
// CONNECT with the requested pod as a param (S15.4, S14.1).
func TestEscalatingExec(t *testing.T) {
	t.Parallel()
	s := harness.Sole(t)
	s.Kubectl(t, "default").Must("apply", "-f", "../../examples/policies/exec.yaml")
	h := s.HTTP(t, nil)
	const pods = "/api/v1/namespaces/default/pods"
	for name, spec := range map[string]string{
		"plain":      `containers: [{name: c, image: x}]`,
		"privileged": `containers: [{name: c, image: x, securityContext: {privileged: true}}]`,
		"init":       `initContainers: [{name: i, image: x, securityContext: {privileged: true}}], containers: [{name: c, image: x}]`,
		"hostpid":    `hostPID: true, containers: [{name: c, image: x}]`,
		"hostipc":    `hostIPC: true, containers: [{name: c, image: x}]`,
	} {
		h.Must(http.StatusCreated, "POST", pods, toJSON(`{metadata: {name: %s}, spec: {automountServiceAccountToken: false, nodeName: away, %s}}`, name, spec))
	}
	for name, message := range map[string]string{
		"plain": "", "privileged": "a privileged container", "init": "a privileged container", "hostpid": "using host pid", "hostipc": "using host ipc",
	} {
		for _, verb := range []string{"exec", "attach"} {
			r := h.Do("POST", pods+"/"+name+"/"+verb+"?container=c&command=id&stdout=true", "")
			denied := strings.Contains(r.Text("message"), "escalating-exec.example.com")
			if denied != (message != "") || denied && (r.Code != http.StatusForbidden || !strings.Contains(r.Text("message"), message)) {
				t.Errorf("%s of %s: %d %s, want %q", verb, name, r.Code, r.Text("message"), message)
			}
		}
	}
}
