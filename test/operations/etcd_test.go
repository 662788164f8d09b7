package operations

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// The commands for the embedded etcd reach the etcd of the running server, and the server continues.
func TestLookAfterTheEmbeddedEtcd(t *testing.T) {
	t.Parallel()
	const section = "Disk"
	a := harness.NewAdministrator(t)
	s := harness.StartOn(t, filepath.Join(a.Dir, "gatehouse.data"))
	if out := a.Follow(t, section, "etcd status"); !strings.Contains(out, "IN USE") || !strings.Contains(out, "8192 MiB") {
		t.Error(out)
	}
	if out := a.Follow(t, section, "etcd defrag"); !strings.Contains(out, "before, in") || strings.Contains(out, ": 0 KiB") {
		t.Error(out)
	}
	create(t, s, http.StatusCreated, fmt.Sprintf(configMaps, "default"), named("after"))
	run := func(code int, args ...string) harness.Result {
		t.Helper()
		r := harness.Run(t, append([]string{"etcd"}, args...)...)
		if r.Code != code {
			t.Errorf("%q: %d %s", args, r.Code, r.Err)
		}
		return r
	}
	var members []struct {
		SizeBytes, InUseBytes, Revision int64
		Leader                          bool
	}
	if err := json.Unmarshal([]byte(run(0, "status", "-o", "json", "--data-dir", s.DataDir).Out), &members); err != nil || len(members) != 1 {
		t.Fatalf("%v %v", members, err)
	}
	if m := members[0]; m.SizeBytes == 0 || m.InUseBytes == 0 || m.InUseBytes > m.SizeBytes || m.Revision == 0 || !m.Leader {
		t.Errorf("%+v", m)
	}
	// Its output is a valid value of --etcd-servers.
	endpoint := strings.TrimSpace(run(0, "endpoints", "--data-dir", s.DataDir).Out)
	if out := run(0, "alarm", "disarm", "--etcd-servers", endpoint).Out; out != "no alarms\n" {
		t.Error(out)
	}
	run(2, "status", "--data-dir", s.DataDir, "--etcd-servers", endpoint)
	run(1, "status", "--data-dir", t.TempDir())
	s.Stop(t)
	if r := run(1, "status", "--data-dir", s.DataDir); !strings.Contains(r.Err, "no server runs on it") {
		t.Error(r.Err)
	}
}
