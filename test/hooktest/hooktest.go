package hooktest

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
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Server is an HTTPS server with any number of webhooks, one per path. It is safe for concurrent use.
type Server struct {
	*httptest.Server
	// CA is the PEM bundle that clients must trust. The server's certificate is valid for 127.0.0.1 and for
	// the service default/hooks, which Resolve resolves.
	CA []byte
	// Dial connects to a server in a synctest bubble. It is nil for servers on the network.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)

	mu struct {
		sync.Mutex
		paths map[string]http.HandlerFunc
		// asked contains the requests that each webhook received, in order.
		asked map[string][]*admissionv1.AdmissionRequest
	}
}

// Answer returns the response of a webhook to a request.
type Answer func(r *http.Request, req *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse

// New starts a server and closes it at the end of the test. The test fails if more goroutines run afterwards
// than before.
func New(t testing.TB) *Server {
	t.Helper()
	before := runtime.NumGoroutine()
	s := start(t, nil)
	t.Cleanup(func() {
		s.Close()
		awaitGoroutines(t, before)
	})
	return s
}

// NewInBubble starts a server for a test in a synctest bubble. The bubble itself checks that no goroutines
// remain at the end of the test.
func NewInBubble(t testing.TB) *Server {
	t.Helper()
	pipes := NewPipes()
	s := start(t, pipes)
	s.Dial = pipes.Dial
	t.Cleanup(s.Close)
	return s
}

// start starts a server at a listener; nil means a free port of this machine.
func start(t testing.TB, at net.Listener) *Server {
	t.Helper()
	s := &Server{}
	s.mu.paths = map[string]http.HandlerFunc{}
	s.mu.asked = map[string][]*admissionv1.AdmissionRequest{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		h := s.mu.paths[r.URL.Path]
		s.mu.Unlock()
		if h == nil {
			http.NotFound(w, r)
			return
		}
		h(w, r)
	}))
	if at != nil {
		s.Listener.Close()
		s.Listener = at
	}
	s.TLS = &tls.Config{Certificates: []tls.Certificate{certificate()}}
	// Tests with bad certificates and broken connections must not log.
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	s.CA = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return s
}

// certificate returns the certificate shared by all servers. It is also valid at the fake time of a synctest
// bubble.
var certificate = sync.OnceValue(func() tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "webhooks of tests"},
		NotBefore: time.Unix(0, 0), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true,
		DNSNames: []string{"hooks.default.svc"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
})

// Resolve returns the address of the service default/hooks.
func (s *Server) Resolve(_ context.Context, namespace, name string, _ int32) ([]string, error) {
	if namespace != "default" || name != "hooks" {
		return nil, fmt.Errorf("service %s/%s not found", namespace, name)
	}
	return []string{s.Listener.Addr().String()}, nil
}

// awaitGoroutines waits until at most the given number of goroutines run.
func awaitGoroutines(t testing.TB, before int) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for runtime.NumGoroutine() > before {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<20)
			t.Errorf("%d goroutines are left, there were %d:\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
			return
		}
		runtime.Gosched()
	}
}

// Serve sets the handler of a path, which has no leading slash.
func (s *Server) Serve(path string, h http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.paths["/"+path] = h
}

// Answer adds a webhook for the review versions v1 and v1beta1 at a path. It records the requests for
// Requests.
func (s *Server) Answer(path string, a Answer) {
	s.Serve(path, func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s.mu.Lock()
		s.mu.asked[path] = append(s.mu.asked[path], review.Request)
		s.mu.Unlock()
		response := a(r, review.Request)
		response.UID = review.Request.UID
		review.Request, review.Response = nil, response
		w.Header().Set("Content-Type", "application/json")
		// An error means that the client has closed the connection, and can be ignored.
		_ = json.NewEncoder(w).Encode(&review)
	})
}

// AnswerAlpha adds a webhook for the review version v1alpha1 at a path. Like the oldest examples, it answers
// without apiVersion and kind.
func (s *Server) AnswerAlpha(path string, a Answer) {
	s.Serve(path, func(w http.ResponseWriter, r *http.Request) {
		var review struct {
			Spec *admissionv1.AdmissionRequest `json:"spec"`
		}
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s.mu.Lock()
		s.mu.asked[path] = append(s.mu.asked[path], review.Spec)
		s.mu.Unlock()
		response := a(r, review.Spec)
		_ = json.NewEncoder(w).Encode(map[string]any{"status": map[string]any{"allowed": response.Allowed, "status": response.Result}})
	})
}

// Requests returns the requests that a webhook has received.
func (s *Server) Requests(path string) []*admissionv1.AdmissionRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.mu.asked[path])
}

// Allow is an Answer that allows every request.
func Allow(*http.Request, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Allowed: true}
}

// Deny returns an Answer that denies every request with a status.
func Deny(status metav1.Status) Answer {
	return func(*http.Request, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{Result: &status}
	}
}

// Patch returns an Answer that allows every request with a JSON patch.
func Patch(operations string) Answer {
	return func(*http.Request, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		kind := admissionv1.PatchTypeJSONPatch
		return &admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(operations), PatchType: &kind}
	}
}
