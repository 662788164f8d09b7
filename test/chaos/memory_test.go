//go:build linux

package chaos

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"sync"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// Resident memory follows the live heap: the server returns the memory of garbage to the operating system.
func TestMemoryFollowsWhatIsAlive(t *testing.T) {
	t.Parallel()
	writes := speed.Of(50, 150)
	s := harness.Start(t)
	rounds(t, 1, func(i int) {
		var churning sync.WaitGroup
		for w := range writers {
			churning.Go(func() {
				h := s.HTTP(t, nil)
				name := fmt.Sprintf("churn-%d-%d", i, w)
				h.Must(http.StatusCreated, "POST", configMaps, configMap(name, 1))
				for n := range writes {
					h.Must(http.StatusOK, "PUT", configMaps+"/"+name, configMap(name, 50_000+n))
				}
			})
		}
		churning.Wait()
		live, anonymous := alive(t, s), resident(t, s, "RssAnon")
		t.Logf("after churn: %d MB alive, %d MB resident without pages of files, %d MB with", live/1e6, anonymous/1e6, resident(t, s, "VmRSS")/1e6)
		if most := 2*live + 230e6; anonymous > most {
			t.Errorf("%d MB are resident, and %d MB alive", anonymous/1e6, live/1e6)
		}
		// Requests for more metrics would keep the server busy.
		harness.Eventually(t, "a quiet server gives memory back", func() error {
			if all := resident(t, s, "RssAnon"); all > 2*live+40e6 {
				return fmt.Errorf("%d MB are resident, and %d MB were alive", all/1e6, live/1e6)
			}
			return nil
		})
		if live, all := max(live, alive(t, s)), resident(t, s, "RssAnon"); all > 2*live+100e6 {
			t.Errorf("in quiet, %d MB are resident, and %d MB alive", all/1e6, live/1e6)
		}
	})
}

// alive returns the live heap of a server at the last garbage collection, in bytes.
func alive(t *testing.T, s *harness.Server) int64 {
	t.Helper()
	n := int64(s.HTTP(t, nil).Metrics().Single("go_gc_heap_live_bytes"))
	if n == 0 {
		t.Fatal("the server does not say what is alive")
	}
	return n
}

// resident returns a line of the kernel's memory statistics of a server, in bytes.
func resident(t *testing.T, s *harness.Server, line string) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.PID()))
	if err != nil {
		t.Fatal(err)
	}
	match := regexp.MustCompile(line + `:\s+(\d+) kB`).FindSubmatch(status)
	if match == nil {
		t.Fatalf("no %s in\n%s", line, status)
	}
	n, err := strconv.ParseInt(string(match[1]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n << 10
}
