package replicas

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// TestAServerThatGoesOnJudgesByWhatIsInForce verifies S11.9 for a paused process: a request that begins when
// the process resumes is evaluated against the registrations that another server acknowledged at least a
// regular interval earlier, and so are later requests. The pauses are longer than an interval, and shorter
// than the maximum staleness.
func TestAServerThatGoesOnJudgesByWhatIsInForce(t *testing.T) {
	speed.Long(t)
	t.Parallel()
	f := sharedFleet(t, three, controllers...)
	f.must(http.StatusCreated, 0, "POST", collection("mutating"), f.configuration("mutating", 1))
	for i := range 6 {
		server, version := 1+i%2, i+2
		clients := make([]*client, 8)
		for c := range clients {
			clients[c] = f.client(server)
			// The connection is open before the pause.
			if _, err := clients[c].send(harness.Context(t), "GET", configMaps, nil); err != nil {
				t.Fatal(err)
			}
		}
		f.servers[server].Pause(t)
		pause(t.Context(), time.Duration(i)*300*time.Millisecond)
		f.must(http.StatusOK, 0, "PATCH", collection("mutating")+"/history", f.configuration("mutating", version))
		pause(t.Context(), interval+interval/4)
		f.servers[server].Resume(t)
		var all sync.WaitGroup
		for c := range clients {
			all.Go(func() {
				for n := range 5 {
					a, err := clients[c].send(t.Context(), "POST", configMaps+"?dryRun=All", configMap(fmt.Sprintf("judged-%d-%d", c, n)))
					if err != nil || a.code != http.StatusCreated {
						t.Errorf("%+v, %v", a, err)
						return
					}
					if got := versions(a.header)["mutating"]; got != version {
						t.Errorf("S11.9 pause %d: request %d is judged by version %d, and version %d is in force", i, n, got, version)
					}
				}
			})
		}
		all.Wait()
	}
}
