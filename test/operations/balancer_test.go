package operations

import (
	"fmt"
	"net/http"
	"regexp"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// What the page has a balancer ask goes on to succeed while etcd is away: the servers share the etcd, so
// no other one would serve better, and the balancer would end every connection.
func TestABalancerKeepsServersWhoseEtcdIsAway(t *testing.T) {
	t.Parallel()
	asked := regexp.MustCompile(`option httpchk GET (\S+)`).FindStringSubmatch(harness.OperationsPages(t))
	if asked == nil {
		t.Fatal("the page has no balancer")
	}
	etcd := harness.StartEtcd(t)
	s := harness.Start(t, "--etcd-servers", etcd.URL)
	h := s.HTTP(t, nil)
	h.Must(http.StatusOK, "GET", asked[1], "")
	etcd.Kill(t)
	for _, check := range []string{"etcd", "admission"} {
		harness.Eventually(t, "the check "+check+" fails", func() error {
			if code, err := h.Try(t.Context(), "GET", "/readyz/"+check, ""); code == http.StatusOK || err != nil {
				return fmt.Errorf("%d, %v", code, err)
			}
			return nil
		})
	}
	h.Must(http.StatusOK, "GET", asked[1], "")
}
