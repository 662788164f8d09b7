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

// Server is an HTTPS server with any number of webhooks, each at a path of its
// own. It is safe for concurrent use.
type Server struct {
	*httptest.Server
	// CA is the PEM bundle that clients must trust. The server's certificate is valid for
	// 127.0.0.1 and for the service default/hooks, which Resolve finds.
	CA []byte
	// Dial connects to a server in a synctest bubble. It is nil for other servers, which are
	// reached over the network.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)

	mu struct {
		sync.Mutex
		paths map[string]http.HandlerFunc
		// asked has the requests that each webhook got, in order.
		asked map[string][]*admissionv1.AdmissionRequest
	}
}

// Answer returns the response of a webhook to a request.
type Answer func(r *http.Request, req *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse

// New starts a server, which ends with the test. The test fails if more
// goroutines are left then than there were.
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

// NewInBubble starts a server for a test in a synctest bubble. The bubble itself checks that no
// goroutines are left when the test ends.
func NewInBubble(t testing.TB) *Server {
	t.Helper()
	pipes := NewPipes()
	s := start(t, pipes)
	s.Dial = pipes.Dial
	t.Cleanup(s.Close)
	return s
}

// start starts a server at a listener; nil means a port of this machine.
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

// certificate is the certificate of all servers. It is valid at the time of a synctest bubble,
// too.
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

// Resolve finds the server behind the service default/hooks.
func (s *Server) Resolve(_ context.Context, namespace, name string, _ int32) ([]string, error) {
	if namespace != "default" || name != "hooks" {
		return nil, fmt.Errorf("service %s/%s not found", namespace, name)
	}
	return []string{s.Listener.Addr().String()}, nil
}

// awaitGoroutines waits until no more goroutines are left than there were.
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

// Serve sets what happens at a path, which has no leading slash.
func (s *Server) Serve(path string, h http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.paths["/"+path] = h
}

// Answer puts a webhook of review versions v1 and v1beta1 at a path. It keeps the requests for
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
		// An error means that the client is gone, and can be ignored.
		_ = json.NewEncoder(w).Encode(&review)
	})
}

// AnswerAlpha puts a webhook of review version v1alpha1 at a path, which answers
// as the oldest examples do: without apiVersion and kind.
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

// Requests returns the requests that a webhook got so far.
func (s *Server) Requests(path string) []*admissionv1.AdmissionRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.mu.asked[path])
}

// Allow is an Answer that allows everything.
func Allow(*http.Request, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Allowed: true}
}

// Deny denies everything with a status.
func Deny(status metav1.Status) Answer {
	return func(*http.Request, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{Result: &status}
	}
}

// Patch allows everything with a JSON patch.
func Patch(operations string) Answer {
	return func(*http.Request, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		kind := admissionv1.PatchTypeJSONPatch
		return &admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(operations), PatchType: &kind}
	}
}
