package serving

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// S11.65: a server that is killed and started while its database is full answers as before: it
// deletes, judges dry runs, and refuses what would take space, with the reason. With a larger quota
// it writes again.
func TestAFullDatabaseAfterARestart(t *testing.T) {
	t.Parallel()
	const quota = 16 << 20
	s := harness.Start(t, "--etcd-quota", fmt.Sprint(quota))
	h := s.HTTP(t, nil)
	big := strings.Repeat("x", 900<<10)
	object := func(name string) string {
		return `{"metadata":{"name":"` + name + `"},"data":{"big":"` + big + `"}}`
	}
	full := 0
	for ; full < 2*quota/len(big); full++ {
		r := h.Do("POST", defaultConfigMaps, object(fmt.Sprint("c", full)))
		if r.Code == http.StatusServiceUnavailable {
			break
		}
		if r.Code != http.StatusCreated {
			t.Fatalf("%d %s", r.Code, r.Raw)
		}
	}
	// What is smaller still finds room for a while.
	big = ""
	for i := 0; ; i++ {
		if r := h.Do("POST", defaultConfigMaps, object(fmt.Sprint("small", i))); r.Code == http.StatusServiceUnavailable {
			break
		}
		if i > 1000 {
			t.Fatal("the database does not become full")
		}
	}
	s.Kill(t)
	s.Restart(t)
	h = s.HTTP(t, nil)
	h.Must(http.StatusOK, "GET", "/readyz", "")
	h.Must(http.StatusCreated, "POST", defaultConfigMaps+"?dryRun=All", object("dry"))
	h.Must(http.StatusOK, "DELETE", defaultConfigMaps+"/c0", "")
	refused := h.Refused(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "POST", defaultConfigMaps, object("more"))
	if !strings.Contains(refused.Message, "the database of the storage is full") {
		t.Error(refused.Message)
	}
	s.Kill(t)
	s.Flags("--etcd-quota", fmt.Sprint(4*quota))
	s.Restart(t)
	h = s.HTTP(t, nil)
	h.Must(http.StatusCreated, "POST", defaultConfigMaps, object("more"))
	h.Must(http.StatusCreated, "POST", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", `{"metadata":{"name":"written"},"webhooks":[]}`)
}
