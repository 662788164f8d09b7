package replicas

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// Servers that start together on an empty etcd create the same objects at the same time, and servers that
// stop together change the same endpoints: no server logs that as an error, and the addresses of all stopped
// servers are removed.
func TestServersStartAndEndTogether(t *testing.T) {
	t.Parallel()
	etcd := harness.StartEtcd(t)
	servers := make([]*harness.Server, speed.Of(2, 3))
	all := func(do func(i int)) {
		var group sync.WaitGroup
		for i := range servers {
			group.Go(func() { do(i) })
		}
		group.Wait()
	}
	all(func(i int) {
		servers[i] = harness.Start(t, "--etcd-servers", etcd.URL, "--controllers", "*", "--advertise-address", fmt.Sprintf("10.9.0.%d", i+1))
	})
	if slices.Contains(servers, nil) {
		t.FailNow()
	}
	final := len(servers) - 1
	last := servers[final].HTTP(t, nil)
	addresses := func() []string {
		var found []string
		list, _ := last.Get("/api/v1/namespaces/default/endpoints/kubernetes").At("subsets").([]any)
		for _, subset := range list {
			ready, _ := harness.At(subset, "addresses").([]any)
			for _, a := range ready {
				found = append(found, fmt.Sprint(harness.At(a, "ip")))
			}
		}
		slices.Sort(found)
		return slices.Compact(found)
	}
	harness.Eventually(t, "the service leads to all", func() error {
		if got := addresses(); len(got) != len(servers) {
			return fmt.Errorf("%q", got)
		}
		return nil
	})
	all(func(i int) {
		if i < final {
			servers[i].Stop(t)
		}
	})
	if got := addresses(); !slices.Equal(got, []string{fmt.Sprintf("10.9.0.%d", len(servers))}) {
		t.Errorf("the service leads to %q when the other servers have ended", got)
	}
	servers[final].Stop(t)
	for i, s := range servers {
		for line := range strings.Lines(s.Log()) {
			if strings.HasPrefix(line, "E") && !slices.ContainsFunc(expected, func(text string) bool { return strings.Contains(line, text) }) {
				t.Errorf("server %d: %s", i, line)
			}
		}
	}
}

// expected are parts of error lines that are no conflict between servers. The check of addresses may see a service
// created by another server before its address. The last server asks itself while it ends, and on a busy machine
// these requests reach their deadline.
var expected = []string{
	"is not allocated; repairing", "ipallocator repair failed ... retrying",
	"context deadline exceeded", "context canceled", "http: Handler timeout",
}
