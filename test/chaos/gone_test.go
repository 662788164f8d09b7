package chaos

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// S22.24: kinds and namespaces that came, were used and went leave no goroutine and no watch
// behind. A round is 30 of each; -long makes more rounds.
func TestWhatIsGoneLeavesNothing(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, "--controllers", "*")
	admin := s.HTTP(t, nil)
	const (
		count       = 30
		definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	)
	round := func(i int) {
		for n := range count {
			group := fmt.Sprintf("g%d-%d.gone.example.com", i, n)
			admin.Must(http.StatusCreated, "POST", definitions, fmt.Sprintf(`{"metadata":{"name":"widgets.%[1]s"},"spec":{"group":%[1]q,"scope":"Namespaced",
				"names":{"plural":"widgets","singular":"widget","kind":"Widget"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`, group))
			admin.Must(http.StatusCreated, "POST", "/api/v1/namespaces", fmt.Sprintf(`{"metadata":{"name":"gone-%d-%d"}}`, i, n))
		}
		var using sync.WaitGroup
		for n := range count {
			using.Go(func() {
				group, in := fmt.Sprintf("g%d-%d.gone.example.com", i, n), fmt.Sprintf("/namespaces/gone-%d-%d", i, n)
				owner := admin.Must(http.StatusCreated, "POST", "/api/v1"+in+"/configmaps", `{"metadata":{"name":"owner"}}`)
				widget := fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"Widget","metadata":{"name":"owned","ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":%q}]}}`, group, owner.Text("metadata", "uid"))
				path := "/apis/" + group + "/v1" + in + "/widgets"
				harness.Eventually(t, path, func() error {
					if code, err := admin.Try(t.Context(), "POST", path, widget); code != http.StatusCreated {
						return fmt.Errorf("%d, %v", code, err)
					}
					return nil
				})
				admin.Must(http.StatusOK, "DELETE", "/api/v1"+in+"/configmaps/owner", "")
				harness.Eventually(t, "the collector follows the kind", func() error {
					if code, err := admin.Try(t.Context(), "GET", path+"/owned", ""); code != http.StatusNotFound {
						return fmt.Errorf("%d, %v", code, err)
					}
					return nil
				})
			})
		}
		using.Wait()
		for n := range count {
			group := fmt.Sprintf("g%d-%d.gone.example.com", i, n)
			admin.Must(http.StatusOK, "DELETE", definitions+"/widgets."+group, "")
			admin.Must(http.StatusOK, "DELETE", fmt.Sprintf("/api/v1/namespaces/gone-%d-%d", i, n), "")
		}
	}
	measure := func() (goroutines, watches float64) {
		m := admin.Metrics()
		return m.Single("go_goroutines"), m.Value("apiserver_longrunning_requests")
	}
	// The first round starts what then stays for good, and is over when nothing changes for a while.
	round(0)
	goroutines, watches := measure()
	for quiet := 0; quiet < 8; time.Sleep(2 * time.Second) {
		now, watching := measure()
		if quiet++; now < goroutines-5 || now > goroutines+5 {
			quiet = 0
		}
		goroutines, watches = now, watching
	}
	// A kind that stays takes five goroutines or more.
	const room = 60
	rounds(t, 1, func(i int) {
		round(i + 1)
		most, open := measure()
		harness.Eventually(t, "all is as it was before", func() error {
			if now, watching := measure(); now > goroutines+room || watching > watches+room/10 {
				return fmt.Errorf("%v goroutines and %v watches; %v and %v before, %v and %v in between", now, watching, goroutines, watches, most, open)
			}
			return nil
		})
		now, watching := measure()
		t.Logf("%v goroutines and %v watches before, %v and %v with %d kinds, %v and %v after", goroutines, watches, most, open, count, now, watching)
	})
}
