package serving

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// S11.65: a server that is killed and restarted while its database is full behaves as before: it deletes,
// evaluates dry runs, and rejects writes that need space, with the reason. With a larger quota it accepts
// writes again.
func TestAFullDatabaseAfterARestart(t *testing.T) {
	t.Parallel()
	quota := speed.Of(16, 64) << 20
	s := harness.Start(t, "--etcd-quota", fmt.Sprint(quota))
	h := s.HTTP(t, nil)
	// Objects of this size leave little unusable space in etcd, so that the database stays full.
	big := strings.Repeat("x", 60_000)
	object := func(name string) string {
		return `{"metadata":{"name":"` + name + `"},"data":{"big":"` + big + `"}}`
	}
	for i := range 2 * quota / len(big) {
		r := h.Do("POST", defaultConfigMaps, object(fmt.Sprint("c", i)))
		if r.Code == http.StatusServiceUnavailable {
			break
		}
		if r.Code != http.StatusCreated {
			t.Fatalf("%d %s", r.Code, r.Raw)
		}
	}
	big = ""
	s.Kill(t)
	s.Restart(t)
	h = s.HTTP(t, nil)
	h.Must(http.StatusOK, "GET", "/readyz", "")
	h.Must(http.StatusCreated, "POST", defaultConfigMaps+"?dryRun=All", object("dry"))
	h.Must(http.StatusOK, "DELETE", defaultConfigMaps+"/c0", "")
	// Space that etcd could not use before may be free now.
	if r := h.Do("POST", defaultConfigMaps, object("more")); r.Code != http.StatusCreated && (r.Code != http.StatusServiceUnavailable || !strings.Contains(string(r.Raw), "the database of the storage is full")) {
		t.Errorf("%d %s", r.Code, r.Raw)
	}
	if !speed.IsLong() {
		return
	}
	s.Kill(t)
	s.Flags("--etcd-quota", fmt.Sprint(2*quota))
	s.Restart(t)
	h = s.HTTP(t, nil)
	h.Must(http.StatusCreated, "POST", defaultConfigMaps, object("last"))
	h.Must(http.StatusCreated, "POST", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", `{"metadata":{"name":"written"},"webhooks":[]}`)
}
