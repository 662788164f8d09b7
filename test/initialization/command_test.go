package initialization

import (
	"net/http"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// The parts of gatehouse initializers that are not in docs/initializers.md.
func TestCommand(t *testing.T) {
	t.Parallel()
	s := newSite(t, harness.Sole(t, "--initializer-timeout", "10m", "--admission-consistency", "strict"))
	s.register("one", "configmaps", "a,b", "a.example.com", "b.example.com")
	s.Must(http.StatusOK, "PATCH", s.path("configurations")+"/one", strings.Replace(configuration("one", "configmaps", "a.example.com", "b.example.com"),
		`"name":"a.example.com"`, `"name":"a.example.com","failurePolicy":"Fail"`, 1), "Content-Type", mergePatch)
	s.Must(http.StatusAccepted, "POST", s.path("configmaps")+including, body("configmaps", "o"))
	for _, test := range []struct {
		arguments string
		code      int
		want      string
	}{
		{"list configmaps", 0, "configmaps/o a.example.com,b.example.com Fail"},
		{"list secrets", 0, "No object waits for an initializer."},
		{"complete configmap/o c.example.com", 1, `configmap/o does not wait for "c.example.com"; it waits for a.example.com, b.example.com`},
		{"complete configmap/o", 0, "configmap/o no longer waits for a.example.com; next is b.example.com"},
		{"list", 0, "configmaps/o b.example.com Ignore"},
		{"complete configmap/o b.example.com", 0, "configmap/o is initialized"},
		{"complete configmap/o", 1, "configmap/o is initialized"},
		{"complete o", 2, `"o" is not of the form KIND/NAME, such as deployment/web`},
		{"fail configmap/o", 2, "--message is required"},
		{"fail configmap/o --message no --code 200", 2, "--code 200 is not an HTTP status of a failure"},
	} {
		t.Run(test.arguments, func(t *testing.T) {
			r := harness.Run(t, append([]string{"initializers", "--kubeconfig", s.Kubeconfig, "--namespace", s.ns}, strings.Fields(test.arguments)...)...)
			if said := strings.Join(strings.Fields(r.Out+r.Err), " "); r.Code != test.code || !strings.Contains(said, test.want) {
				t.Errorf("exit code %d: %s", r.Code, said)
			}
		})
	}
}
