package replicas

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// A create that one server has admitted and that a webhook delays is rejected if the namespace was deleted
// through another server meanwhile. No object of the create exists after the namespace is created again.
func TestNothingIsStoredInANamespaceThatAnotherServerDeleted(t *testing.T) {
	t.Parallel()
	// The other server runs the controllers, because it starts first. The server with the delayed create
	// would wait for it before emptying the namespace.
	f := sharedFleet(t, pair, slowReads...)
	other, one := f.servers[0], f.servers[1]
	slow, h := one.HTTP(t, nil), other.HTTP(t, nil)
	ns := one.Namespace(t)
	configMaps := "/api/v1/namespaces/" + ns + "/configmaps"
	asked, answer := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(answer) })
	ask := sync.OnceFunc(func() { close(asked) })
	hook := harness.NewWebhookServer(t, nil).Hook("/", func(w http.ResponseWriter, r *harness.Review) {
		ask()
		<-answer
		harness.Allow(w, r)
	})
	t.Cleanup(release)
	h.Must(http.StatusCreated, "POST", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", fmt.Sprintf(`{
		"metadata": {"name": "slow"}, "webhooks": [{
			"name": "slow.example.com", "clientConfig": {"url": %q, "caBundle": %q}, "sideEffects": "NoneOnDryRun",
			"rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
			"timeoutSeconds": 30, "admissionReviewVersions": ["v1"]}]}`, hook.URL(), hook.CABundle()))
	var created sync.WaitGroup
	created.Go(func() {
		// Until the webhook is active, creates are not delayed.
		for i := 0; ; i++ {
			code, err := slow.Try(harness.Context(t), "POST", configMaps, fmt.Sprintf(`{"metadata": {"name": "c%d"}}`, i))
			if err != nil {
				t.Error(err)
				return
			}
			if code != http.StatusCreated {
				if code != http.StatusNotFound {
					t.Errorf("create: %d", code)
				}
				return
			}
			select {
			case <-asked:
				t.Error("it was stored")
				return
			default:
			}
		}
	})
	select {
	case <-asked:
	case <-harness.Context(t).Done():
		t.Fatal("the webhook was not called")
	}
	h.Must(http.StatusOK, "DELETE", "/api/v1/namespaces/"+ns, "")
	harness.Eventually(t, "the namespace is gone", func() error {
		if r := h.Do("GET", "/api/v1/namespaces/"+ns, ""); r.Code != http.StatusNotFound {
			return fmt.Errorf("%s", r.Raw)
		}
		return nil
	})
	release()
	created.Wait()
	h.Must(http.StatusCreated, "POST", "/api/v1/namespaces", fmt.Sprintf(`{"metadata": {"name": %q}}`, ns))
	for _, item := range h.Get(configMaps).Body["items"].([]any) {
		t.Errorf("%s is there", harness.At(item, "metadata", "name"))
	}
}
