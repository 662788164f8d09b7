package harness

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	stdlog "log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// WebhookServer is an HTTPS server with admission webhooks, one per path.
type WebhookServer struct {
	*httptest.Server
	// Authority signed the server's certificate.
	Authority *Authority

	mu struct {
		sync.Mutex
		hooks       map[string]*Hook
		connections int
	}
}

// NewWebhookServer starts a server on a loopback address. Its certificate is valid for 127.0.0.1, localhost
// and the names. The tweaks are applied to the server before it starts.
func NewWebhookServer(t testing.TB, names []string, tweaks ...func(*httptest.Server)) *WebhookServer {
	t.Helper()
	w := &WebhookServer{Authority: NewAuthority(t, "webhooks")}
	w.mu.hooks = map[string]*Hook{}
	w.Server = httptest.NewUnstartedServer(http.HandlerFunc(w.serve))
	w.TLS = &tls.Config{
		Certificates: []tls.Certificate{w.Authority.Serving(t, append([]string{"127.0.0.1", "localhost"}, names...)...)},
		// Requested, so that tests see client certificates, but not required.
		ClientAuth: tls.RequestClientCert,
	}
	w.Config.ErrorLog = stdlog.New(io.Discard, "", 0)
	for _, tweak := range tweaks {
		tweak(w.Server)
	}
	count := w.Config.ConnState
	w.Config.ConnState = func(c net.Conn, state http.ConnState) {
		if count != nil {
			count(c, state)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		switch state {
		case http.StateNew:
			w.mu.connections++
		case http.StateClosed, http.StateHijacked:
			w.mu.connections--
		}
	}
	w.StartTLS()
	t.Cleanup(func() {
		w.CloseClientConnections()
		w.Close()
	})
	return w
}

// Address returns the HOST:PORT of the listener.
func (w *WebhookServer) Address() string { return w.Listener.Addr().String() }

// Hook adds a webhook at a path and replaces any other webhook at that path.
func (w *WebhookServer) Hook(path string, answer Answer) *Hook {
	h := &Hook{Server: w, Path: path}
	h.mu.answer = answer
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.hooks[path] = h
	return h
}

func (w *WebhookServer) serve(rw http.ResponseWriter, req *http.Request) {
	w.mu.Lock()
	hook := w.mu.hooks[req.URL.Path]
	w.mu.Unlock()
	if hook == nil {
		http.NotFound(rw, req)
		return
	}
	hook.serve(rw, req)
}

// Hook is a webhook. It records the reviews that it receives.
type Hook struct {
	Server *WebhookServer
	Path   string

	mu struct {
		sync.Mutex
		answer  Answer
		reviews []*Review
	}
}

// Review is a review received by a webhook.
type Review struct {
	HTTP *http.Request
	Raw  []byte
	// Body is the decoded review.
	Body map[string]any
	At   time.Time
}

// Request returns a field of the review's request (of its spec in v1alpha1).
func (r *Review) Request(path ...string) any {
	field := "request"
	if r.Body["apiVersion"] == "admission.k8s.io/v1alpha1" {
		field = "spec"
	}
	return At(r.Body, append([]string{field}, path...)...)
}

// Text returns a field of the review's request as text, or "".
func (r *Review) Text(path ...string) string {
	v := r.Request(path...)
	if v == nil {
		return ""
	}
	return fmt.Sprint(v)
}

// URL returns the webhook's address for clientConfig.
func (h *Hook) URL() string { return h.Server.URL + h.Path }

// ClientConfig returns a clientConfig for the webhook.
func (h *Hook) ClientConfig() map[string]any {
	return map[string]any{"url": h.URL(), "caBundle": h.CABundle()}
}

// CABundle returns the CA bundle of the webhook's server for clientConfig.
func (h *Hook) CABundle() string {
	return base64.StdEncoding.EncodeToString(h.Server.Authority.Bundle)
}

// Answer changes the answer of the webhook.
func (h *Hook) Answer(a Answer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.answer = a
}

// Reviews returns the reviews received so far, in order of arrival.
func (h *Hook) Reviews() []*Review {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.mu.reviews)
}

// Forget deletes the recorded reviews.
func (h *Hook) Forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.reviews = nil
}

// Last returns the last review. It fails the test if there is none.
func (h *Hook) Last(t testing.TB) *Review {
	t.Helper()
	all := h.Reviews()
	if len(all) == 0 {
		t.Fatalf("webhook %s was not called", h.Path)
	}
	return all[len(all)-1]
}

func (h *Hook) serve(rw http.ResponseWriter, req *http.Request) {
	r := &Review{HTTP: req, At: time.Now()}
	var err error
	if r.Raw, err = io.ReadAll(req.Body); err != nil {
		panic(http.ErrAbortHandler)
	}
	if err := json.Unmarshal(r.Raw, &r.Body); err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	h.mu.Lock()
	h.mu.reviews = append(h.mu.reviews, r)
	answer := h.mu.answer
	h.mu.Unlock()
	answer(rw, r)
}

// Answer responds to a review.
type Answer func(http.ResponseWriter, *Review)

// Respond answers with a review of the requested version. fields are the fields of its response; uid defaults
// to the request's uid.
func Respond(fields map[string]any) Answer {
	return func(w http.ResponseWriter, r *Review) {
		response := map[string]any{"uid": r.Request("uid")}
		maps.Copy(response, fields)
		WriteJSON(w, http.StatusOK, map[string]any{"apiVersion": r.Body["apiVersion"], "kind": r.Body["kind"], "response": response})
	}
}

// Allow admits every request.
func Allow(w http.ResponseWriter, r *Review) {
	if r.Body["apiVersion"] == "admission.k8s.io/v1alpha1" {
		WriteJSON(w, http.StatusOK, map[string]any{"status": map[string]any{"allowed": true}})
		return
	}
	Respond(map[string]any{"allowed": true})(w, r)
}

// Deny rejects every request with a status, which may be nil.
func Deny(status map[string]any) Answer {
	fields := map[string]any{"allowed": false}
	if status != nil {
		fields["status"] = status
	}
	return Respond(fields)
}

// Patch allows every request and changes its object with JSON patch operations.
func Patch(operations string) Answer {
	return Respond(map[string]any{"allowed": true, "patchType": "JSONPatch", "patch": base64.StdEncoding.EncodeToString([]byte(operations))})
}

// Raw answers with an arbitrary body.
func Raw(code int, contentType, body string) Answer {
	return func(w http.ResponseWriter, _ *Review) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

// Hang does not answer before the client gives up.
func Hang(_ http.ResponseWriter, r *Review) { <-r.HTTP.Context().Done() }

// Abort closes the connection without an answer.
func Abort(http.ResponseWriter, *Review) { panic(http.ErrAbortHandler) }

// WriteJSON answers with JSON.
func WriteJSON(w http.ResponseWriter, code int, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	Raw(code, "application/json", string(data))(w, nil)
}

// Refused returns an address that refuses connections.
func Refused(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Metrics is a snapshot of /metrics.
type Metrics string

// Metrics reads the metrics.
func (h *HTTP) Metrics() Metrics {
	h.t.Helper()
	return Metrics(h.Get("/metrics").Raw)
}

// Value returns the sum of all series of a metric whose labels include the given labels, each in the form
// name="value"; 0 if there are none.
func (m Metrics) Value(name string, labels ...string) float64 {
	total := 0.0
	for line := range strings.Lines(string(m)) {
		if !strings.HasPrefix(line, name+"{") {
			continue
		}
		series, value, ok := strings.Cut(strings.TrimSpace(line[len(name)+1:]), "} ")
		if !ok || slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(","+series+",", ","+l+",") }) {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			panic(fmt.Sprintf("metric %s: %v", line, err))
		}
		total += v
	}
	return total
}

// Single returns the value of a metric without labels; 0 if there is none.
func (m Metrics) Single(name string) float64 {
	for line := range strings.Lines(string(m)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				panic(fmt.Sprintf("metric %s: %v", line, err))
			}
			return v
		}
	}
	return 0
}
