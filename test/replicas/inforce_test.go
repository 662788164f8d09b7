package replicas

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// TestOtherServersHearOfRegistrations proves S11.8 for the servers that a registration
// was not written through: they hear of it by a watch and judge by it at once, long
// before the next regular read. The server it was written through judges by it as soon
// as the write is answered.
func TestOtherServersHearOfRegistrations(t *testing.T) {
	t.Parallel()
	const interval = 40 * time.Second
	f := newFleet(t, "--admission-refresh-interval", interval.String(), "--admission-max-staleness", (2 * interval).String())
	// judgedBy returns the version of the hook that judges a write through a server,
	// 0 when none does.
	judgedBy := func(server int) int {
		t.Helper()
		a, err := f.client(server).send(harness.Context(t), "POST", configMaps+"?dryRun=All", configMap("judged"))
		if err != nil || a.code != http.StatusCreated {
			t.Fatalf("%+v, %v", a, err)
		}
		return versions(a.header)["mutating"]
	}
	var took []time.Duration
	for i := range 12 {
		writer, version := i%len(f.servers), i+1
		method, path, code := "POST", collection("mutating"), http.StatusCreated
		var body any = f.configuration("mutating", version)
		switch i % 4 {
		case 1, 2:
			method, path, code = "PATCH", path+"/history", http.StatusOK
		case 3:
			method, path, code, body, version = "DELETE", path+"/history", http.StatusOK, nil, 0
		}
		a := f.must(code, writer, method, path, body)
		answered := time.Now()
		if warnings := fmt.Sprint(a.header.Values("Warning")); strings.Contains(warnings, "not yet in force") {
			t.Errorf("S11.8 write %d: %s", i, warnings)
		}
		if got := judgedBy(writer); got != version {
			t.Errorf("S11.8 write %d, through server %d, which then judges by version %d, not %d", i, writer, got, version)
		}
		for server := range f.servers {
			for judgedBy(server) != version {
				if time.Since(answered) > interval/2 {
					t.Fatalf("S11.8 write %d: server %d does not judge by it after %s", i, server, time.Since(answered))
				}
			}
		}
		took = append(took, time.Since(answered))
	}
	slices.Sort(took)
	t.Logf("in force on all servers %s after the answer, at most %s, measured by requests one after the other", took[len(took)/2], took[len(took)-1])
}
