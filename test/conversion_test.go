package test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/server"
	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// TestConversionWebhooksBehindServices is about conversion webhooks behind services,
// which are found as admission webhooks are (S8.2 to S8.4).
func TestConversionWebhooksBehindServices(t *testing.T) {
	t.Parallel()
	pods := &network{routes: map[string]string{}, dialed: map[string]int{}}
	s := harness.InProcess(t, server.Options{DialWebhook: pods.dial})
	h := s.HTTP(t, nil)
	// Every connection is used once, so that every call dials.
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
	// converted reads in the version that is not stored until that goes as wanted.
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
			return r.Code == http.StatusInternalServerError && strings.Contains(r.Text("message"), "service hooks/converter has no ready endpoints for port 443")
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

// convertColor is a conversion webhook: what v1 calls color is colour in v2.
func convertColor(w http.ResponseWriter, r *harness.Review) {
	objects := []any{}
	for _, o := range r.Request("objects").([]any) {
		object := o.(map[string]any)
		object["apiVersion"] = r.Text("desiredAPIVersion")
		from, to := "color", "colour"
		if object["apiVersion"] == "paint.example.com/v1" {
			from, to = to, from
		}
		if v, ok := object[from]; ok {
			delete(object, from)
			object[to] = v
		}
		objects = append(objects, object)
	}
	harness.Respond(map[string]any{"convertedObjects": objects, "result": map[string]any{"status": "Success"}})(w, r)
}
