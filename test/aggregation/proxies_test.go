package aggregation

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/internal/server"
	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/harness/inside"
)

// podAddress is the address of the pods of these tests.
const podAddress = "10.96.1.2"

// echo answers with the request, and echoes the data of an upgraded connection.
func echo(w http.ResponseWriter, req *http.Request) {
	if req.Header.Get("Upgrade") == "" {
		body, _ := io.ReadAll(req.Body)
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(http.StatusTeapot)
		fmt.Fprintf(w, "%s %s %s", req.Method, req.URL.RequestURI(), body)
		return
	}
	conn, buffered, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	line, _ := buffered.ReadString('\n')
	fmt.Fprint(conn, "heard "+line)
}

// The proxies of pods and services choose the same backends as in kube-apiserver, with the same checks.
func TestProxiesOfPodsAndServices(t *testing.T) {
	t.Parallel()
	backend, secure := httptest.NewServer(http.HandlerFunc(echo)), httptest.NewTLSServer(http.HandlerFunc(echo))
	t.Cleanup(backend.Close)
	t.Cleanup(secure.Close)
	at := func(s *httptest.Server) string { return s.Listener.Addr().String() }
	// No program on this machine can have the addresses of pods.
	places := map[string]string{podAddress + ":8080": at(backend), podAddress + ":8443": at(secure)}
	s := inside.Start(t, server.Options{
		ServiceAddresses: []string{"away/named:80=" + at(backend), "away/any=" + at(secure)},
		DialWebhook: func(ctx context.Context, network, address string) (net.Conn, error) {
			if place, ok := places[address]; ok {
				address = place
			}
			return (&net.Dialer{}).DialContext(ctx, network, address)
		},
	})
	h, ns := s.HTTP(t, nil), s.Namespace(t)
	h.Must(http.StatusCreated, "POST", "/api/v1/namespaces", `{"metadata":{"name":"away"}}`)
	in := func(namespace, rest string) string { return "/api/v1/namespaces/" + namespace + "/" + rest }
	place := func(name, address string) {
		h.Must(http.StatusCreated, "POST", in(ns, "pods"), pod(name, "spec: {containers: [{name: c, image: i, ports: [{containerPort: 8080}]}]}"))
		if address != "" {
			h.Must(http.StatusOK, "PATCH", in(ns, "pods/"+name+"/status"), fmt.Sprintf(`{"status":{"podIP":%q,"podIPs":[{"ip":%[1]q}]}}`, address), "Content-Type", mergePatch)
		}
	}
	place("p", podAddress)
	place("local", "127.0.0.1")
	place("nowhere", "")
	h.Must(http.StatusCreated, "POST", in(ns, "services"), `{"metadata":{"name":"s"},"spec":{"ports":[{"name":"web","port":80,"targetPort":8080},{"name":"tls","port":443,"targetPort":8443}]}}`)
	h.Must(http.StatusCreated, "POST", "/apis/discovery.k8s.io/v1/namespaces/"+ns+"/endpointslices", fmt.Sprintf(
		`{"metadata":{"name":"s-1","labels":{"kubernetes.io/service-name":"s"}},"addressType":"IPv4","ports":[{"name":"web","port":8080},{"name":"tls","port":8443}],
		  "endpoints":[{"addresses":[%q],"conditions":{"ready":true},"targetRef":{"kind":"Pod","namespace":%q,"name":"p"}}]}`, podAddress, ns))
	h.Must(http.StatusCreated, "POST", in(ns, "services"), `{"metadata":{"name":"empty"},"spec":{"ports":[{"port":80}]}}`)
	for _, name := range []string{"named", "any"} {
		h.Must(http.StatusCreated, "POST", in("away", "services"), fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"ports":[{"name":"web","port":80},{"name":"tls","port":443}]}}`, name))
	}
	for _, tt := range []struct {
		name, method, path, body string
		code                     int
		want                     string
	}{
		{"a pod", "GET", in(ns, "pods/p/proxy/some/path?a=b"), "", 418, "GET /some/path?a=b "},
		{"a pod, a body", "POST", in(ns, "pods/p/proxy/"), "hello", 418, "POST / hello"},
		{"a pod, its port", "PUT", in(ns, "pods/p:8080/proxy/x"), "", 418, "PUT /x "},
		{"a pod, by TLS", "GET", in(ns, "pods/https:p:8443/proxy/x"), "", 418, "GET /x "},
		{"a pod at an address that is not allowed", "GET", in(ns, "pods/local/proxy/"), "", 400, "address not allowed"},
		{"a pod without an address", "GET", in(ns, "pods/nowhere/proxy/"), "", 400, "address not allowed"},
		{"a pod that there is not", "GET", in(ns, "pods/none/proxy/"), "", 404, `pods \"none\" not found`},
		{"a service, a port's name", "GET", in(ns, "services/s:web/proxy/x"), "", 418, "GET /x "},
		{"a service, a port's number", "GET", in(ns, "services/s:80/proxy/x"), "", 418, "GET /x "},
		{"a service, by TLS", "DELETE", in(ns, "services/https:s:tls/proxy/x"), "", 418, "DELETE /x "},
		{"a service, a port that there is not", "GET", in(ns, "services/s:81/proxy/x"), "", 503, `no service port 81 found for service \"s\"`},
		{"a service without endpoints", "GET", in(ns, "services/empty/proxy/x"), "", 503, `no endpoints available for service \"empty\"`},
		{"a service that there is not", "GET", in(ns, "services/none:80/proxy/x"), "", 404, `services \"none\" not found`},
		{"a service that runs elsewhere", "POST", in("away", "services/named:web/proxy/x"), "hello", 418, "POST /x hello"},
		{"a service that runs elsewhere, by number", "GET", in("away", "services/named:80/proxy/x"), "", 418, "GET /x "},
		{"a port that has no address elsewhere", "GET", in("away", "services/named:tls/proxy/x"), "", 503, "no endpoints available"},
		{"a service all of whose ports run elsewhere", "GET", in("away", "services/https:any:443/proxy/x"), "", 418, "GET /x "},
		{"a port that there is not of a service that runs elsewhere", "GET", in("away", "services/any:81/proxy/x"), "", 503, "no service port 81 found"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			harness.Eventually(t, "the answer is that of what runs there", func() error {
				// The server observes EndpointSlices after a delay.
				if r := h.Do(tt.method, tt.path, tt.body); r.Code != tt.code || !strings.Contains(string(r.Raw), tt.want) {
					return fmt.Errorf("%d %s, want %d %s", r.Code, r.Raw, tt.code, tt.want)
				}
				return nil
			})
		})
	}
	t.Run("who may not", func(t *testing.T) {
		s.HTTP(t, s.As("dave")).Refused(http.StatusForbidden, metav1.StatusReasonForbidden, "GET", in(ns, "pods/p/proxy/"), "")
		s.HTTP(t, s.As("dave")).Refused(http.StatusForbidden, metav1.StatusReasonForbidden, "GET", in("away", "services/named:80/proxy/"), "")
	})
	t.Run("an upgraded connection", func(t *testing.T) {
		conn, err := h.Dial()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if c, ok := conn.(*tls.Conn); ok && c.ConnectionState().NegotiatedProtocol == "h2" {
			t.Fatal("the connection speaks HTTP/2")
		}
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: gatehouse\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n", in(ns, "pods/p/proxy/"))
		answer := bufio.NewReader(conn)
		status, err := answer.ReadString('\n')
		if err != nil || !strings.Contains(status, "101") {
			t.Fatalf("%q, %v", status, err)
		}
		for line := status; strings.TrimSpace(line) != ""; {
			if line, err = answer.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		fmt.Fprint(conn, "hello\n")
		heard, err := answer.ReadString('\n')
		if err != nil || heard != "heard hello\n" {
			t.Errorf("%q, %v", heard, err)
		}
	})
	t.Run("admission judges it as a CONNECT", func(t *testing.T) {
		h.Must(http.StatusCreated, "POST", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies", `{"metadata":{"name":"closed"},"spec":{
			"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CONNECT"],"resources":["pods/proxy","services/proxy"]}]},
			"validations":[{"expression":"!object.path.startsWith('/closed')","message":"this is closed"}]}}`)
		h.Must(http.StatusCreated, "POST", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings", `{"metadata":{"name":"closed"},"spec":{"policyName":"closed","validationActions":["Deny"]}}`)
		for _, path := range []string{in(ns, "pods/p/proxy/closed"), in("away", "services/named:80/proxy/closed")} {
			if r := h.Do("GET", path, ""); r.Code != http.StatusUnprocessableEntity || !strings.Contains(string(r.Raw), "this is closed") {
				t.Errorf("%s: %d %s", path, r.Code, r.Raw)
			}
			want(t, "an open path", h.Do("GET", strings.Replace(path, "closed", "open", 1), "").Code, http.StatusTeapot)
		}
	})
}
