package operations

import (
	"fmt"
	"net/http"
	"regexp"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// The documented health check for load balancers succeeds while etcd is down: the servers share the etcd, so
// no other server would be better, and the balancer would close every connection.
func TestABalancerKeepsServersWhoseEtcdIsAway(t *testing.T) {
	speed.Long(t)
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
