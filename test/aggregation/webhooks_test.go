package aggregation

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/server"
	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/harness/inside"
)

// network routes connections from the pod addresses in a server's endpoints to webhooks of the test on
// loopback addresses. It is safe for concurrent use.
type network struct {
	mu     sync.Mutex
	routes map[string]string
	dialed map[string]int
}

func (n *network) route(address, to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.routes[address] = to
}

// taken returns the number of dials per address, and resets the counts.
func (n *network) taken() map[string]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	dialed := n.dialed
	n.dialed = map[string]int{}
	return dialed
}

func (n *network) dial(ctx context.Context, network, address string) (net.Conn, error) {
	n.mu.Lock()
	n.dialed[address]++
	to, ok := n.routes[address]
	n.mu.Unlock()
	if !ok {
		return nil, fmt.Errorf("no route to %s", address)
	}
	return (&net.Dialer{}).DialContext(ctx, network, to)
}

// TestWebhooksBehindServices covers webhooks behind services (S8.2 to S8.4).
func TestWebhooksBehindServices(t *testing.T) {
	t.Parallel()
	pods := &network{routes: map[string]string{}, dialed: map[string]int{}}
	s := inside.Start(t, server.Options{AdmissionConsistency: "strict", DialWebhook: pods.dial})
	h := s.HTTP(t, nil)
	const ns = "hooks"
	h.Must(http.StatusCreated, "POST", "/api/v1/namespaces", toJSON(`{apiVersion: v1, kind: Namespace, metadata: {name: hooks}}`))
	// Without keep-alives, every call dials.
	once := func(s *httptest.Server) { s.Config.SetKeepAlivesEnabled(false) }
	hooks := harness.NewWebhookServer(t, []string{"web.hooks.svc", "bare.hooks.svc", "ip.hooks.svc", "many.hooks.svc"}, once)
	wrong := harness.NewWebhookServer(t, []string{"other.hooks.svc"}, once)
	hook := hooks.Hook("/check", harness.Allow)
	wrong.Hook("/check", harness.Allow)

	services, slices := "/api/v1/namespaces/hooks/services", "/apis/discovery.k8s.io/v1/namespaces/hooks/endpointslices"
	service := func(name, spec string) {
		h.Must(http.StatusCreated, "POST", services, toJSON(`{apiVersion: v1, kind: Service, metadata: {name: %s}, spec: %s}`, name, spec))
	}
	slice := func(service string, endpoints ...string) string {
		return toJSON(`{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4, metadata: {name: %s, labels: {kubernetes.io/service-name: %[1]s}}, ports: [{name: "", port: 8443, protocol: TCP}], endpoints: [%s]}`,
			service, strings.Join(endpoints, ", "))
	}
	ready := func(ip string) string { return `{addresses: ["` + ip + `"], conditions: {ready: true}}` }
	// call writes an object that a webhook at the service's port admits, and returns the message if the
	// request is rejected.
	call := func(t *testing.T, service string, port int, hook *harness.Hook) string {
		t.Helper()
		w := webhook(service, "default", hook)
		w["clientConfig"] = map[string]any{"caBundle": hook.CABundle(),
			"service": map[string]any{"namespace": ns, "name": service, "port": port, "path": "/check"}}
		configuration := asJSON(map[string]any{"apiVersion": "admissionregistration.k8s.io/v1", "kind": validating, "metadata": map[string]any{"name": "hook"}, "webhooks": []any{w}})
		h := s.HTTP(t, nil)
		if r := h.Do("PATCH", registrationsPath("v1", validating)+"/hook?fieldManager=t&force=true", configuration, "Content-Type", applyPatch); r.Code >= 300 {
			t.Fatalf("%d %s", r.Code, r.Raw)
		}
		return h.Do("POST", configMaps("default")+"?dryRun=All", configMap("c")).Text("message")
	}
	// settled repeats the call until the server has observed the latest writes.
	settled := func(t *testing.T, service string, port int, condition func(message string, dialed map[string]int) bool) {
		t.Helper()
		harness.Eventually(t, "calls of "+service, func() error {
			pods.taken()
			message := call(t, service, port, hook)
			if dialed := pods.taken(); !condition(message, dialed) {
				return fmt.Errorf("%q %v", message, dialed)
			}
			return nil
		})
	}

	service("web", `{ports: [{port: 443, targetPort: 8443}]}`)
	t.Run("S8.4 a service without endpoints", func(t *testing.T) {
		settled(t, "web", 443, func(message string, dialed map[string]int) bool {
			return strings.Contains(message, `: no endpoints available for service "hooks/web": none is ready for port 443`) && len(dialed) == 0
		})
	})
	t.Run("S8.4 a service whose endpoints are not ready", func(t *testing.T) {
		service("late", `{ports: [{port: 443, targetPort: 8443}]}`)
		h.Must(http.StatusCreated, "POST", slices, slice("late", `{addresses: ["10.9.0.7"], conditions: {ready: false}}`))
		settled(t, "late", 443, func(message string, dialed map[string]int) bool {
			return strings.Contains(message, `no endpoints available for service "hooks/late"`) && len(dialed) == 0
		})
	})
	t.Run("S8.2 S8.3 endpoints of a slice", func(t *testing.T) {
		pods.route("10.9.0.1:8443", hooks.Address())
		pods.route("10.9.0.2:8443", hooks.Address())
		h.Must(http.StatusCreated, "POST", slices, slice("web", ready("10.9.0.1"), ready("10.9.0.2"), `{addresses: ["10.9.0.3"], conditions: {ready: false}}`))
		settled(t, "web", 443, func(message string, dialed map[string]int) bool { return message == "" })
		review := hook.Last(t).HTTP
		want(t, "S8.2 host", review.Host, "web.hooks.svc:443")
		want(t, "S8.2 server name", review.TLS.ServerName, "web.hooks.svc")
		want(t, "S8.6 protocol", review.Proto, "HTTP/1.1")
		pods.taken()
		for range 40 {
			want(t, "message", call(t, "web", 443, hook), "")
		}
		dialed := pods.taken()
		if dialed["10.9.0.1:8443"] < 5 || dialed["10.9.0.2:8443"] < 5 || len(dialed) != 2 {
			t.Errorf("S8.4 calls are not spread over the ready endpoints: %v", dialed)
		}
	})
	t.Run("S8.4 an endpoint that does not answer the dial", func(t *testing.T) {
		pods.route("10.9.0.1:8443", harness.Refused(t))
		for range 10 {
			want(t, "message", call(t, "web", 443, hook), "")
		}
		pods.route("10.9.0.2:8443", harness.Refused(t))
		message := call(t, "web", 443, hook)
		for _, part := range []string{"10.9.0.1:8443", "10.9.0.2:8443", "connection refused", "hooks/web"} {
			if !strings.Contains(message, part) {
				t.Errorf("no %q in %q", part, message)
			}
		}
	})
	t.Run("S8.3 endpoints change between calls", func(t *testing.T) {
		pods.route("10.9.0.4:8443", hooks.Address())
		h := s.HTTP(t, nil)
		h.Must(http.StatusOK, "PUT", slices+"/web", slice("web", ready("10.9.0.4")))
		settled(t, "web", 443, func(message string, dialed map[string]int) bool { return message == "" && dialed["10.9.0.4:8443"] == 1 })
		for range 5 {
			want(t, "message", call(t, "web", 443, hook), "")
		}
		want(t, "dialed", pods.taken(), map[string]int{"10.9.0.4:8443": 5})
	})
	t.Run("S8.2 a certificate for another name", func(t *testing.T) {
		pods.route("10.9.0.4:8443", wrong.Address())
		message := call(t, "web", 443, &harness.Hook{Server: wrong, Path: "/check"})
		for _, part := range []string{"x509: certificate is valid for", "web.hooks.svc"} {
			if !strings.Contains(message, part) {
				t.Errorf("no %q in %q", part, message)
			}
		}
	})
	t.Run("S8.4 a port that the service does not have", func(t *testing.T) {
		if message := call(t, "web", 8080, hook); !strings.Contains(message, "service hooks/web has no port 8080, only 443") {
			t.Errorf("message is %q", message)
		}
	})
	t.Run("S8.4 a service that is not there", func(t *testing.T) {
		if message := call(t, "nothing", 443, hook); !strings.Contains(message, `service hooks/nothing`) {
			t.Errorf("message is %q", message)
		}
	})
	t.Run("S8.4 a headless service without endpoints", func(t *testing.T) {
		service("bare", `{clusterIP: None, ports: [{port: 443}]}`)
		settled(t, "bare", 443, func(message string, _ map[string]int) bool {
			return strings.Contains(message, `no endpoints available for service "hooks/bare": none is ready for port 443`)
		})
	})
	t.Run("S8.4 Endpoints", func(t *testing.T) {
		service("ip", `{ports: [{name: https, port: 8444, targetPort: 9443}, {name: other, port: 1}]}`)
		pods.route("10.9.0.9:9443", hooks.Address())
		h.Must(http.StatusCreated, "POST", "/api/v1/namespaces/hooks/endpoints", toJSON(`
{apiVersion: v1, kind: Endpoints, metadata: {name: ip}, subsets: [{addresses: [{ip: 10.9.0.9}], ports: [{name: other, port: 1}, {name: https, port: 9443}]}]}`))
		settled(t, "ip", 8444, func(message string, dialed map[string]int) bool { return message == "" && dialed["10.9.0.9:9443"] == 1 })
		want(t, "S8.2 host", hook.Last(t).HTTP.Host, "ip.hooks.svc:8444")
	})
	t.Run("S8.4 a named targetPort", func(t *testing.T) {
		service("many", `{ports: [{name: hook, port: 443, targetPort: webhook}]}`)
		pods.route("10.9.0.10:9999", hooks.Address())
		body := strings.Replace(slice("many", ready("10.9.0.10")), `"name":"","port":8443`, `"name":"hook","port":9999`, 1)
		h.Must(http.StatusCreated, "POST", slices, body)
		settled(t, "many", 443, func(message string, dialed map[string]int) bool {
			return message == "" && dialed["10.9.0.10:9999"] == 1
		})
	})
}

// S8.21: the server connects to the webhook of a service at the address of --service-address; the certificate
// is valid for the service's name.
func TestServiceAddressesLeadToWebhooks(t *testing.T) {
	t.Parallel()
	hooks := harness.NewWebhookServer(t, []string{"web.hooks.svc"})
	hook := hooks.Hook("/check", harness.Allow)
	s := harness.Start(t, "--admission-consistency", "strict", "--service-address", "hooks/web="+hooks.Address(), "--service-address", "hooks/other:8443="+hooks.Address())
	h := s.HTTP(t, nil)
	for _, tc := range []struct {
		service string
		port    int
		want    string
	}{
		{"web", 443, ""},
		{"web", 8443, ""},
		{"other", 8443, "certificate is valid for localhost, web.hooks.svc, not other.hooks.svc"},
		{"other", 443, `service "other" not found`},
	} {
		w := webhook("check", "default", hook)
		w["clientConfig"] = map[string]any{"caBundle": hook.CABundle(),
			"service": map[string]any{"namespace": "hooks", "name": tc.service, "port": tc.port, "path": "/check"}}
		configuration := asJSON(map[string]any{"apiVersion": "admissionregistration.k8s.io/v1", "kind": validating, "metadata": map[string]any{"name": "hook"}, "webhooks": []any{w}})
		if r := h.Do("PATCH", registrationsPath("v1", validating)+"/hook?fieldManager=t&force=true", configuration, "Content-Type", applyPatch); r.Code >= 300 {
			t.Fatalf("%d %s", r.Code, r.Raw)
		}
		message := h.Do("POST", configMaps("default")+"?dryRun=All", configMap("c")).Text("message")
		if message == "" != (tc.want == "") || !strings.Contains(message, tc.want) {
			t.Errorf("%s:%d: %q, want %q", tc.service, tc.port, message, tc.want)
		}
	}
	want(t, "reviews", len(hook.Reviews()), 2)
}
