package plugins

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// Network and storage plugins, and many operators, run privileged pods.
func TestPrivilegedContainersNeedTheFlag(t *testing.T) {
	t.Parallel()
	const privileged = `spec: {containers: [{name: main, image: example/main:1, securityContext: {privileged: true}}]}`
	template := toJSON(`
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: privileged}
spec:
  selector: {matchLabels: {app: a}}
  template:
    metadata: {labels: {app: a}}
    spec: {containers: [{name: main, image: example/main:1, securityContext: {privileged: true}}]}`)
	const pods, daemonSets = "/api/v1/namespaces/default/pods", "/apis/apps/v1/namespaces/default/daemonsets"

	t.Run("accepted unless something else is said", func(t *testing.T) {
		s := harness.Sole(t)
		admin := s.HTTP(t, nil)
		admin.Must(201, "POST", pods, pod("privileged", privileged))
		admin.Must(201, "POST", daemonSets, template)
	})
	t.Run("--allow-privileged=false", func(t *testing.T) {
		speed.Long(t)
		s := harness.Start(t, "--allow-privileged=false")
		admin := s.HTTP(t, nil)
		for path, body := range map[string]string{pods: pod("privileged", privileged), daemonSets: template} {
			got := admin.Refused(422, metav1.StatusReasonInvalid, "POST", path, body)
			if want := "securityContext.privileged: Forbidden: disallowed by cluster policy"; !strings.Contains(got.Message, want) {
				t.Errorf("%s: got %q, want %q in it", path, got.Message, want)
			}
		}
		admin.Must(201, "POST", pods, pod("plain"))
	})
}
