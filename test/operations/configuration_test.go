package operations

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// A server starts with the file written by --print-config, and flags override the file.
func TestServerWithAConfigurationFile(t *testing.T) {
	t.Parallel()
	a := harness.NewAdministrator(t)
	a.Follow(t, "Start", "--print-config")
	file := filepath.Join(a.Dir, "server.yaml")
	text, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(text), "\nbackupSchedule: '@daily'\n") || !strings.Contains(string(text), "\n# bindAddress: 127.0.0.1\n") {
		t.Errorf("%v\n%s", err, text)
	}
	a.Write(t, "server.yaml", append(text, "tokenAuthFile: "+file+"\n"...))
	if said := harness.Refuses(t, "--config", file); !strings.Contains(said, file) {
		t.Errorf("the file of tokens is not one: %s", said)
	}
	a.Write(t, "server.yaml", append(text, "maxRequestsInFlight: 3\n"...))
	if said := harness.Refuses(t, "--config", file); !strings.Contains(said, "unknown field maxRequestsInFlight (did you mean maxRequestsInflight?)") {
		t.Error(said)
	}
	a.Write(t, "server.yaml", append(text, "allowPrivileged: false\n"...))
	s := harness.StartOn(t, filepath.Join(a.Dir, "gatehouse.data"), "--config", file)
	privileged := `{"metadata":{"name":"a"},"spec":{"containers":[{"name":"main","image":"example.com/main","securityContext":{"privileged":true}}]}}`
	create(t, s, 422, "/api/v1/namespaces/default/pods", privileged)
	s.Stop(t)
	flagged := harness.StartOn(t, s.DataDir, "--config", file, "--allow-privileged", "--profiling=false")
	create(t, flagged, 201, "/api/v1/namespaces/default/pods", privileged)
	withoutProfiling(t, flagged)
}
