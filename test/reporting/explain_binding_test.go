package reporting

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// S9.24: a server explains the response to a binding: an error in the binding, a missing pod, or the reason
// why the pod cannot be bound to the node.
func TestBindingsAreExplained(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	ns := s.Namespace(t)
	s.Kubectl(t, ns).MustWith(`apiVersion: v1
kind: Pod
metadata: {name: bound}
spec: {nodeName: node-0, containers: [{name: c, image: i}]}
---
apiVersion: v1
kind: Pod
metadata: {name: gated}
spec: {schedulingGates: [{name: example.com/a}], containers: [{name: c, image: i}]}
---
apiVersion: v1
kind: Pod
metadata: {name: free}
spec: {containers: [{name: c, image: i}]}
`, "apply", "-f", "-")
	for _, tc := range speed.Some(t, 2, []struct{ name, pod, node, says string }{
		{"no node", "free", "", "target.name: Required value"},
		{"no pod", "none", "node-1", `pods "none" not found`},
		{"a pod with a node", "bound", "node-1", `pod bound is already assigned to node "node-0"`},
		{"a pod that waits", "gated", "node-1", "pod gated has non-empty .spec.schedulingGates"},
		{"a pod without a node", "free", "node-1", ""},
	}) {
		t.Run(tc.name, func(t *testing.T) {
			object := `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"` + tc.pod + `"},"target":{"name":"` + tc.node + `"}}`
			file := filepath.Join(t.TempDir(), "binding.yaml")
			if err := os.WriteFile(file, []byte(object), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, args := range [][]string{nil, {"--subresource", "binding"}} {
				got := harness.Run(t, append([]string{"explain", "--kubeconfig", s.Kubeconfig, "-n", ns, "-f", file}, args...)...)
				said := strings.Join(strings.Fields(got.Out+got.Err), " ")
				if rejected := !strings.Contains(said, "Nothing in this plan rejects the request."); rejected != (tc.says != "") || !strings.Contains(said, tc.says) {
					t.Errorf("explained with %v as %s%s", args, got.Out, got.Err)
				}
			}
			answer := s.HTTP(t, nil).Send("POST", "/api/v1/namespaces/"+ns+"/bindings?dryRun=All", strings.NewReader(object))
			if message, _ := answer.Body["message"].(string); (answer.Code >= 400) != (tc.says != "") || !strings.Contains(message, tc.says) {
				t.Errorf("the server answers %d %v", answer.Code, answer.Body)
			}
		})
	}
}
