package builtins

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// reading presents a cluster to the plugins that evaluate requests in one namespace. The plugins read, and never write.
// Each list or object is read once. A resource that the caller may not read seems empty, and is noted in forbidden. It
// is safe for concurrent use.
type reading struct {
	next http.RoundTripper
	// namespace is the only namespace that the plugins see.
	namespace string
	// failed cancels all waiting for responses, with the first error.
	failed context.CancelCauseFunc

	mu      sync.Mutex
	answers map[string]*reply
	// listed are the resources that could be listed.
	listed map[string]bool
	// forbidden lists the resources, PLURAL or PLURAL.GROUP, that the caller may not read, each with the missing right.
	forbidden map[string]string
}

// reply is a complete response.
type reply struct {
	once sync.Once
	code int
	body []byte
	err  error
}

// maxReply bounds the bytes of a response that are read.
const maxReply = 64 << 20

// paths parses the paths of requests as servers do.
var paths = request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// RoundTrip implements http.RoundTripper.
func (r *reading) RoundTrip(q *http.Request) (*http.Response, error) {
	about, err := paths.NewRequestInfo(q)
	if err != nil {
		return nil, err
	}
	if q.Method != http.MethodGet {
		return refusal(q, http.StatusMethodNotAllowed, "a prediction changes nothing"), nil
	}
	query := q.URL.Query()
	if query.Get("watch") == "true" {
		if query.Get("sendInitialEvents") != "" {
			return refusal(q, http.StatusUnprocessableEntity, "lists are not streamed here"), nil
		}
		// Nothing changes while requests are evaluated.
		events := response(q, http.StatusOK, nil)
		events.Body = &silence{q.Context()}
		return events, nil
	}
	for _, name := range []string{"resourceVersion", "resourceVersionMatch", "timeoutSeconds", "timeout"} {
		query.Del(name)
	}
	list := about.Verb == "list"
	resource := schema.GroupResource{Group: about.APIGroup, Resource: about.Resource}.String()
	q = q.Clone(q.Context())
	if resource == "namespaces" && list {
		// Reading the one namespace needs fewer rights than listing all.
		q.URL.Path += "/" + r.namespace
		query.Del("limit")
	}
	q.URL.RawQuery = query.Encode()
	r.mu.Lock()
	key := q.URL.String()
	a := r.answers[key]
	if a == nil {
		a = &reply{}
		r.answers[key] = a
	}
	r.mu.Unlock()
	a.once.Do(func() { r.ask(q, a) })
	switch {
	case a.err != nil:
		r.failed(a.err)
		return nil, a.err
	case a.code == http.StatusForbidden:
		r.mu.Lock()
		defer r.mu.Unlock()
		switch {
		case list:
			r.forbidden[resource] = missing(resource, about.Namespace, r.namespace)
			return response(q, http.StatusOK, listOf()), nil
		case r.listed[resource]:
			// The list does not contain it.
			return refusal(q, http.StatusNotFound, fmt.Sprintf("%s %q not found", resource, about.Name)), nil
		}
	case a.code == http.StatusNotFound && list:
		// The cluster does not have the kind, or the namespace.
		return response(q, http.StatusOK, listOf()), nil
	case a.code == http.StatusOK && list:
		r.mu.Lock()
		r.listed[resource] = true
		r.mu.Unlock()
		if resource == "namespaces" {
			return response(q, http.StatusOK, listOf(a.body)), nil
		}
	case a.code != http.StatusOK && a.code != http.StatusNotFound:
		var s metav1.Status
		message := string(bytes.TrimSpace(a.body))
		if json.Unmarshal(a.body, &s) == nil && s.Message != "" {
			message = s.Message
		}
		err := fmt.Errorf("reading %s: code %d: %s", q.URL.Path, a.code, message)
		r.failed(err)
		return nil, err
	}
	return response(q, a.code, a.body), nil
}

// ask sends a request to the cluster.
func (r *reading) ask(q *http.Request, a *reply) {
	answer, err := r.next.RoundTrip(q)
	if err != nil {
		a.err = err
		return
	}
	defer answer.Body.Close()
	a.code = answer.StatusCode
	if a.body, a.err = io.ReadAll(io.LimitReader(answer.Body, maxReply+1)); a.err == nil && len(a.body) > maxReply {
		a.err = fmt.Errorf("reading %s: the answer has more than %d MiB", q.URL.Path, maxReply>>20)
	}
}

// unread returns the missing right to read a resource; empty if the resource can be read.
func (r *reading) unread(resource string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.forbidden[resource]
}

// missing describes the missing right for a list in a namespace, or in all. own is the namespace of the plugins.
func missing(resource, namespace, own string) string {
	switch {
	case resource == "namespaces":
		return "may not get namespace " + own
	case namespace != "":
		return "may not list " + resource + " in namespace " + namespace
	}
	return "may not list " + resource
}

// listOf returns a list of objects in JSON. The client knows their kind.
func listOf(items ...[]byte) []byte {
	return slices.Concat([]byte(`{"metadata":{"resourceVersion":"1"},"items":[`), bytes.Join(items, []byte(",")), []byte("]}"))
}

// refusal returns an error response with a message.
func refusal(q *http.Request, code int, message string) *http.Response {
	body, _ := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code), Message: message,
	})
	return response(q, code, body)
}

func response(q *http.Request, code int, body []byte) *http.Response {
	return &http.Response{
		Status: http.StatusText(code), StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: q,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}
}

// silence is the body of a watch without events.
type silence struct{ ctx context.Context }

// Read implements io.Reader.
func (s *silence) Read([]byte) (int, error) {
	<-s.ctx.Done()
	return 0, io.EOF
}

// Close implements io.Closer.
func (s *silence) Close() error { return nil }
