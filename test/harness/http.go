package harness

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// HTTP sends plain requests with the credentials of a configuration.
type HTTP struct {
	t      testing.TB
	client *http.Client
	config *rest.Config
	base   string
}

// HTTP returns a client for plain requests; nil means the administrator's
// configuration.
func (s *Server) HTTP(t testing.TB, c *rest.Config) *HTTP {
	t.Helper()
	if c == nil {
		c = s.Admin
	}
	client, err := rest.HTTPClientFor(c)
	if err != nil {
		t.Fatal(err)
	}
	return &HTTP{t: t, client: client, config: c, base: c.Host}
}

// Dial opens a new connection without sending anything.
func (h *HTTP) Dial() (net.Conn, error) {
	config, err := rest.TLSConfigFor(h.config)
	if err != nil {
		return nil, err
	}
	return tls.Dial("tcp", strings.TrimPrefix(h.base, "https://"), config)
}

// Response is an HTTP response of the server.
type Response struct {
	Code   int
	Header http.Header
	Raw    []byte
	// Body is the decoded body if it is JSON or YAML.
	Body map[string]any

	request string
	t       testing.TB
}

// Do sends a request. headers are pairs of name and value; the default content type is application/json.
func (h *HTTP) Do(method, path, body string, headers ...string) *Response {
	h.t.Helper()
	return h.Send(method, path, strings.NewReader(body), headers...)
}

// Send is Do with a body that is read while it is sent.
func (h *HTTP) Send(method, path string, body io.Reader, headers ...string) *Response {
	h.t.Helper()
	res, err := h.open(Context(h.t), method, path, body, headers...)
	if err != nil {
		h.t.Fatal(err)
	}
	defer res.Body.Close()
	r := &Response{Code: res.StatusCode, Header: res.Header, request: method + " " + path, t: h.t}
	if r.Raw, err = io.ReadAll(res.Body); err != nil {
		h.t.Fatalf("%s: %v", r.request, err)
	}
	switch contentType := res.Header.Get("Content-Type"); {
	case len(r.Raw) == 0:
	case strings.HasPrefix(contentType, "application/json"):
		err = json.Unmarshal(r.Raw, &r.Body)
	case strings.HasPrefix(contentType, "application/yaml"):
		err = yaml.Unmarshal(r.Raw, &r.Body)
	}
	if err != nil {
		h.t.Fatalf("%s: %v in %s", r.request, err, r.Raw)
	}
	return r
}

// Try sends a request and returns the status code, or the error of sending it.
func (h *HTTP) Try(ctx context.Context, method, path, body string, headers ...string) (int, error) {
	return h.TrySend(ctx, method, path, strings.NewReader(body), headers...)
}

// TrySend is Try with a body that is read while it is sent.
func (h *HTTP) TrySend(ctx context.Context, method, path string, body io.Reader, headers ...string) (int, error) {
	res, err := h.open(ctx, method, path, body, headers...)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return res.StatusCode, err
}

// TryRead gets a path and returns the response, or the error of sending the request or reading the response.
func (h *HTTP) TryRead(ctx context.Context, path string) (code int, body []byte, err error) {
	res, err := h.open(ctx, http.MethodGet, path, http.NoBody)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	body, err = io.ReadAll(res.Body)
	return res.StatusCode, body, err
}

func (h *HTTP) open(ctx context.Context, method, path string, body io.Reader, headers ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, h.base+path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return h.client.Do(req)
}

// Must is Do, and fails the test if the status code is different.
func (h *HTTP) Must(code int, method, path, body string, headers ...string) *Response {
	h.t.Helper()
	r := h.Do(method, path, body, headers...)
	if r.Code != code {
		h.t.Fatalf("%s: %d, want %d: %s", r.request, r.Code, code, r.Raw)
	}
	return r
}

// Get is Must with GET and code 200.
func (h *HTTP) Get(path string, headers ...string) *Response {
	h.t.Helper()
	return h.Must(http.StatusOK, "GET", path, "", headers...)
}

// Refused sends a request and fails the test unless the response is a v1 Status with the code and reason.
func (h *HTTP) Refused(code int, reason metav1.StatusReason, method, path, body string, headers ...string) *metav1.Status {
	h.t.Helper()
	return h.Do(method, path, body, headers...).Refusal(code, reason)
}

// Refusal fails the test unless the response is a v1 Status with the code and reason.
func (r *Response) Refusal(code int, reason metav1.StatusReason) *metav1.Status {
	r.t.Helper()
	status := &metav1.Status{}
	data, err := json.Marshal(r.Body)
	if err == nil {
		err = json.Unmarshal(data, status)
	}
	if err != nil || r.Code != code || status.Kind != "Status" || status.APIVersion != "v1" || status.Status != metav1.StatusFailure ||
		int(status.Code) != code || status.Reason != reason || status.Message == "" {
		r.t.Fatalf("%s: %d %s, want a v1 Status %d %s: %.2000s", r.request, r.Code, status.Reason, code, reason, r.Raw)
	}
	return status
}

// At returns the value at a path of names and list positions, or nil.
func (r *Response) At(path ...string) any { return At(r.Body, path...) }

// Text returns the value at a path as text, or "".
func (r *Response) Text(path ...string) string {
	v := r.At(path...)
	if v == nil {
		return ""
	}
	return fmt.Sprint(v)
}

// At returns the value at a path of names and list positions, or nil.
func At(v any, path ...string) any {
	for _, name := range path {
		switch t := v.(type) {
		case map[string]any:
			v = t[name]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(t) {
				return nil
			}
			v = t[i]
		default:
			return nil
		}
	}
	return v
}

// Event is an event of a watch.
type Event struct {
	Type   string
	Object map[string]any
}

// Stream is a watch, decoded without a client library.
type Stream struct {
	t       testing.TB
	decoder *json.Decoder
	body    io.Closer
}

// Watch opens a watch and closes it at the end of the test. The path includes the query, such as watch=1.
func (h *HTTP) Watch(path string) *Stream {
	h.t.Helper()
	res, err := h.open(Context(h.t), "GET", path, http.NoBody)
	if err != nil {
		h.t.Fatal(err)
	}
	if res.StatusCode != http.StatusOK {
		data, _ := io.ReadAll(res.Body)
		res.Body.Close()
		h.t.Fatalf("watch of %s: %s: %s", path, res.Status, bytes.TrimSpace(data))
	}
	h.t.Cleanup(func() { res.Body.Close() })
	return &Stream{t: h.t, decoder: json.NewDecoder(res.Body), body: res.Body}
}

// Next returns the next event. It fails the test if the watch ends.
func (s *Stream) Next() Event {
	s.t.Helper()
	e, err := s.Read()
	if err != nil {
		s.t.Fatalf("watch ended: %v", err)
	}
	return e
}

// Read returns the next event, or io.EOF if the server ended the watch.
func (s *Stream) Read() (Event, error) {
	var e Event
	err := s.decoder.Decode(&e)
	return e, err
}

// Close closes the watch.
func (s *Stream) Close() { s.body.Close() }
