package call

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/engine/review"
)

// authority is a CA for test servers and clients.
type authority struct {
	key    *ecdsa.PrivateKey
	cert   *x509.Certificate
	bundle []byte
}

func newAuthority(tb testing.TB, name string) *authority {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		tb.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		tb.Fatal(err)
	}
	return &authority{key, cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// pair returns a certificate and its key in PEM, valid as a server for the names, and as a client.
func (a *authority) pair(tb testing.TB, end time.Time, names ...string) (certPEM, keyPEM []byte) {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: names[0]},
		NotBefore: end.Add(-2 * time.Hour), NotAfter: end, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, n)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		tb.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
}

func (a *authority) serving(tb testing.TB, names ...string) tls.Certificate {
	tb.Helper()
	cert, err := tls.X509KeyPair(a.pair(tb, time.Now().Add(time.Hour), names...))
	if err != nil {
		tb.Fatal(err)
	}
	return cert
}

// serve starts an HTTPS server; tweak may be nil.
func serve(tb testing.TB, cert tls.Certificate, h http.Handler, tweak func(*httptest.Server)) *httptest.Server {
	tb.Helper()
	s := httptest.NewUnstartedServer(h)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	if tweak != nil {
		tweak(s)
	}
	s.StartTLS()
	tb.Cleanup(s.Close)
	return s
}

// allow answers every review with "allowed".
func allow(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Kind, APIVersion string
		Request          struct{ UID string }
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	out := map[string]any{"kind": in.Kind, "apiVersion": in.APIVersion}
	out["response"] = map[string]any{"uid": in.Request.UID, "allowed": true}
	out["status"] = map[string]any{"allowed": true}
	json.NewEncoder(w).Encode(out)
}

func urlHook(u string, ca []byte) *registration.Entry {
	return &registration.Entry{
		Origin:        registration.Origin{Source: registration.Validating, Configuration: "shop", Index: 1, Name: "check.shop.example.com"},
		FailurePolicy: registration.Fail,
		Webhook: &registration.Webhook{
			Timeout: 10 * time.Second, ReviewVersions: []string{"v1"}, ClientConfig: registration.ClientConfig{URL: u, CABundle: ca},
		},
	}
}

func serviceHook(port int32, path string, ca []byte) *registration.Entry {
	h := urlHook("", ca)
	h.ClientConfig.Service = &registration.Service{Namespace: "shop", Name: "check", Path: path, Port: port}
	return h
}

// fixed is a Resolver with one answer.
func fixed(endpoints ...string) Resolver {
	return ResolverFunc(func(context.Context, string, string, int32) ([]string, error) { return endpoints, nil })
}

func newCaller(tb testing.TB, o Options) *Caller {
	tb.Helper()
	if o.Proxy == nil {
		o.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	}
	c, err := New(o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.Close)
	return c
}

const testUID = types.UID("705ab4f5-6393-11e8-b7cc-42010a800002")

func invocation(h *registration.Entry) *Invocation {
	r := &review.Header{Operation: "CREATE", Name: "web", Namespace: "shop"}
	v, ok := review.Choose(h.ReviewVersions)
	if !ok {
		v = review.V1alpha1
	}
	return &Invocation{Hook: h, Body: review.NewBody(v, r, &review.Payload{Object: []byte(`{"kind":"Pod"}`)}), UID: testUID}
}

// mustCall fails the test when the webhook fails.
func mustCall(tb testing.TB, c *Caller, h *registration.Entry) *review.Response {
	tb.Helper()
	r, err := c.Call(tb.Context(), invocation(h))
	if err != nil {
		tb.Fatal(err)
	}
	if !r.Allowed {
		tb.Fatalf("not allowed: %+v", r)
	}
	return r
}

// listener accepts TCP connections and passes them to serve, one goroutine each.
func listener(tb testing.TB, serve func(net.Conn)) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	done := make(chan struct{})
	tb.Cleanup(func() { l.Close(); <-done })
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go serve(conn)
		}
	}()
	return l.Addr().String()
}

// refused returns an address without a listener.
func refused(tb testing.TB) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func contains(s string, parts ...string) string {
	for _, p := range parts {
		if !strings.Contains(s, p) {
			return p
		}
	}
	return ""
}
