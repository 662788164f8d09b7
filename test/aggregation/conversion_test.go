package aggregation

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/internal/server"
	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/harness/inside"
)

// TestConversionWebhooksBehindServices covers conversion webhooks behind services, which are resolved like
// admission webhooks (S8.2 to S8.4).
func TestConversionWebhooksBehindServices(t *testing.T) {
	t.Parallel()
	pods := &network{routes: map[string]string{}, dialed: map[string]int{}}
	s := inside.Start(t, server.Options{DialWebhook: pods.dial})
	h := s.HTTP(t, nil)
	// Without keep-alives, every call dials.
	hooks := harness.NewWebhookServer(t, []string{"converter.hooks.svc"}, func(s *httptest.Server) { s.Config.SetKeepAlivesEnabled(false) })
	hook := hooks.Hook("/convert", convertColor)

	const crds, slices = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/apis/discovery.k8s.io/v1/namespaces/hooks/endpointslices"
	const v1, v2 = "/apis/paint.example.com/v1/pots", "/apis/paint.example.com/v2/pots"
	h.Must(http.StatusCreated, "POST", "/api/v1/namespaces", toJSON(`{apiVersion: v1, kind: Namespace, metadata: {name: hooks}}`))
	h.Must(http.StatusCreated, "POST", "/api/v1/namespaces/hooks/services", toJSON(`
{apiVersion: v1, kind: Service, metadata: {name: converter}, spec: {clusterIP: None, ports: [{port: 443, targetPort: 8443}]}}`))
	h.Must(http.StatusCreated, "POST", crds, toJSON(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: pots.paint.example.com}
spec:
  group: paint.example.com
  scope: Cluster
  names: {plural: pots, singular: pot, kind: Pot}
  conversion:
    strategy: Webhook
    webhook:
      conversionReviewVersions: [v1]
      clientConfig: {caBundle: %s, service: {namespace: hooks, name: converter, path: /convert}}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {color: {type: string}}}}}
  - {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object, properties: {colour: {type: string}}}}}`, hook.CABundle()))
	harness.Eventually(t, "the definition is served", func() error {
		if r := h.Do("GET", v1, ""); r.Code != http.StatusOK {
			return fmt.Errorf("%d %s", r.Code, r.Raw)
		}
		return nil
	})
	h.Must(http.StatusCreated, "POST", v1, toJSON(`{apiVersion: paint.example.com/v1, kind: Pot, metadata: {name: a}, color: red}`))
	slice := func(ips ...string) string {
		for i, ip := range ips {
			ips[i] = `{addresses: ["` + ip + `"], conditions: {ready: true}}`
		}
		return toJSON(`
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4, metadata: {name: converter, labels: {kubernetes.io/service-name: converter}},
ports: [{name: "", port: 8443, protocol: TCP}], endpoints: [%s]}`, strings.Join(ips, ", "))
	}
	// converted reads in a version other than the stored one until want accepts the response.
	converted := func(t *testing.T, want func(r *harness.Response, dialed map[string]int) bool) {
		t.Helper()
		h := s.HTTP(t, nil)
		harness.Eventually(t, "an answer in v2", func() error {
			pods.taken()
			r := h.Do("GET", v2+"/a", "")
			if dialed := pods.taken(); !want(r, dialed) {
				return fmt.Errorf("%d %s, dialed %v", r.Code, r.Raw, dialed)
			}
			return nil
		})
	}

	t.Run("S8.4 a service without endpoints", func(t *testing.T) {
		converted(t, func(r *harness.Response, _ map[string]int) bool {
			return r.Code == http.StatusInternalServerError && strings.Contains(r.Text("message"), `no endpoints available for service "hooks/converter": none is ready for port 443`)
		})
	})
	t.Run("S8.2 S8.3 the endpoint of a slice", func(t *testing.T) {
		pods.route("10.9.1.1:8443", hooks.Address())
		h.Must(http.StatusCreated, "POST", slices, slice("10.9.1.1"))
		converted(t, func(r *harness.Response, dialed map[string]int) bool {
			return r.Code == http.StatusOK && r.Text("colour") == "red" && r.At("color") == nil && dialed["10.9.1.1:8443"] > 0
		})
		call := hook.Last(t).HTTP
		want(t, "S8.2 host", call.Host, "converter.hooks.svc:443")
		want(t, "S8.2 server name", call.TLS.ServerName, "converter.hooks.svc")
	})
	t.Run("a write in the version that is not stored", func(t *testing.T) {
		h := s.HTTP(t, nil)
		h.Must(http.StatusCreated, "POST", v2, toJSON(`{apiVersion: paint.example.com/v2, kind: Pot, metadata: {name: b}, colour: blue}`))
		want(t, "stored", h.Get(v1+"/b").Text("color"), "blue")
	})
	t.Run("S8.3 S8.4 other endpoints, one of which refuses connections", func(t *testing.T) {
		pods.route("10.9.1.2:8443", harness.Refused(t))
		pods.route("10.9.1.3:8443", hooks.Address())
		h.Must(http.StatusOK, "PUT", slices+"/converter", slice("10.9.1.2", "10.9.1.3"))
		converted(t, func(r *harness.Response, dialed map[string]int) bool {
			return r.Code == http.StatusOK && r.Text("colour") == "red" && dialed["10.9.1.2:8443"] > 0 && dialed["10.9.1.3:8443"] > 0 && len(dialed) == 2
		})
	})
}

// A conversion webhook that hangs blocks no other client, however many requests wait for it: reads without
// conversion and requests of other users are answered as usual.
func TestConversionWebhookThatHangsShutsNobodyOut(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, "--max-requests-inflight", "16", "--max-mutating-requests-inflight", "16", "--authorization-mode", "AlwaysAllow")
	h := s.HTTP(t, nil)
	hook := harness.NewWebhookServer(t, nil).Hook("/convert", convertColor)
	const crds, v1, v2 = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/apis/paint.example.com/v1/pots", "/apis/paint.example.com/v2/pots"
	h.Must(http.StatusCreated, "POST", crds, toJSON(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: pots.paint.example.com}
spec:
  group: paint.example.com
  scope: Cluster
  names: {plural: pots, singular: pot, kind: Pot}
  conversion:
    strategy: Webhook
    webhook: {conversionReviewVersions: [v1], clientConfig: {caBundle: %s, url: %q}}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {color: {type: string}}}}}
  - {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object, properties: {colour: {type: string}}}}}`, hook.CABundle(), hook.URL()))
	harness.Eventually(t, "the definition is served", func() error {
		if r := h.Do("GET", v1, ""); r.Code != http.StatusOK {
			return fmt.Errorf("%d %s", r.Code, r.Raw)
		}
		return nil
	})
	h.Must(http.StatusCreated, "POST", v1, toJSON(`{apiVersion: paint.example.com/v1, kind: Pot, metadata: {name: a}, color: red}`))
	hook.Answer(harness.Hang)

	begin := time.Now()
	h.Refused(http.StatusNotFound, metav1.StatusReasonNotFound, "GET", v2+"/none", "")
	h.Get(v1 + "/a")
	// A conversion would wait for its whole time limit of 30 s.
	if took := time.Since(begin); took > 25*time.Second {
		t.Errorf("reads that need no conversion took %v", took)
	}

	ctx, cancel := context.WithCancel(harness.Context(t))
	var crowd sync.WaitGroup
	defer crowd.Wait()
	defer cancel()
	alice := s.HTTP(t, s.As("alice"))
	for i := range 60 {
		path := []string{v2 + "/a", v2 + "/none", v2}[i%3]
		crowd.Go(func() {
			for ctx.Err() == nil {
				// Clients retry after a delay.
				if code, err := alice.Try(ctx, "GET", path, ""); err == nil && code == http.StatusOK {
					t.Errorf("%s was converted", path)
				}
				select {
				case <-ctx.Done():
				case <-time.After(200 * time.Millisecond):
				}
			}
		})
	}
	harness.Eventually(t, "the webhook is called", func() error {
		if len(hook.Reviews()) < 3 {
			return fmt.Errorf("%d calls", len(hook.Reviews()))
		}
		return nil
	})
	bob, refused := s.HTTP(t, s.As("bob")), 0
	const tries = 50
	for range tries {
		if r := bob.Do("GET", "/api/v1/namespaces/default", ""); r.Code != http.StatusOK {
			refused++
		}
		time.Sleep(20 * time.Millisecond)
	}
	// Some of bob's requests may be rejected while the server handles the crowd's requests.
	if refused > tries/5 {
		t.Errorf("another user was refused %d times of %d", refused, tries)
	}
	t.Logf("another user was refused %d times of %d", refused, tries)
}
