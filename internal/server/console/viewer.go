package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxRead bounds the reads of the API for one view, in bytes of all responses together.
const maxRead = 16 << 20

// viewer reads the API for one client's view, only with the credentials of that client's request.
type viewer struct {
	api  http.Handler
	asks *http.Request
	// context ends with the time limit of the view.
	context context.Context
	// left is the number of bytes that may still be read.
	left int
	// work acquires a drawing slot, once. It is called after the API has answered this viewer.
	work func() error
}

// refused is an error response of the API, or an error of the console itself.
type refused struct {
	code    int
	message string
}

func (r *refused) Error() string { return r.message }

// codeOf returns the status code of an error.
func codeOf(err error) int {
	if r := new(refused); errors.As(err, &r) {
		return r.code
	} else if err == nil {
		return http.StatusOK
	}
	return http.StatusInternalServerError
}

// get decodes a response from JSON.
func (v *viewer) get(path string, into any) error { return v.ask(http.MethodGet, path, nil, into) }

// ask sends a request to the API, and decodes the response from JSON.
func (v *viewer) ask(method, path string, body []byte, into any) error {
	answer := &budgeted{viewer: v}
	if err := v.send(method, path, body, answer); err != nil {
		return err
	}
	if err := json.Unmarshal(answer.Bytes(), into); err != nil {
		return fmt.Errorf("the answer of the server to %s cannot be read: %w", path, err)
	}
	return nil
}

// budgeted collects a response. Its bytes count against the read limit of the view.
type budgeted struct {
	viewer *viewer
	bytes.Buffer
}

func (b *budgeted) Write(text []byte) (int, error) {
	if b.viewer.left -= len(text); b.viewer.left < 0 {
		return 0, &refused{http.StatusRequestEntityTooLarge, "there is more to read than this view takes"}
	}
	return b.Buffer.Write(text)
}

// send sends a request to the API with the headers of the viewer, and writes the response to w.
func (v *viewer) send(method, path string, body []byte, w io.Writer) (err error) {
	address, err := url.Parse(path)
	if err != nil {
		return &refused{http.StatusBadRequest, "the server has no such address: " + err.Error()}
	}
	req := v.asks.Clone(v.context)
	req.Method, req.URL, req.RequestURI = method, address, address.RequestURI()
	req.Body, req.ContentLength, req.TransferEncoding, req.Form, req.PostForm = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil, nil, nil
	for _, name := range []string{"Accept-Encoding", "Connection", "Content-Encoding", "Content-Length", "Expect", "If-None-Match", "If-Modified-Since", "Range", "Upgrade"} {
		req.Header.Del(name)
	}
	req.Header.Set("Accept", "application/json, */*;q=0.1")
	req.Header.Set("Content-Type", "application/json")
	a := &answer{body: w, header: http.Header{}}
	defer func() {
		// Handlers abort a response that cannot be completed with this panic.
		p := recover()
		if broken, ok := p.(error); ok && errors.Is(broken, http.ErrAbortHandler) {
			err = &refused{http.StatusBadGateway, "the server broke off its answer to " + path}
		} else if p != nil {
			panic(p)
		}
	}()
	v.api.ServeHTTP(a, req)
	switch {
	case v.context.Err() != nil:
		return &refused{http.StatusGatewayTimeout, fmt.Sprintf("the server did not answer %s within %s", path, viewTime)}
	case a.code >= http.StatusMultipleChoices:
		return &refused{a.code, a.message()}
	case a.err != nil:
		return a.err
	}
	return v.work()
}

// answer receives a response of the API. Its writes do not fail: a handler aborts if it cannot write.
type answer struct {
	header http.Header
	code   int
	// body receives a successful response, problem any other one.
	body    io.Writer
	problem bytes.Buffer
	err     error
}

func (a *answer) Header() http.Header { return a.header }

// Flush implements http.Flusher. It does nothing, because the response is read when it is complete.
func (a *answer) Flush() {}

func (a *answer) WriteHeader(code int) {
	if a.code == 0 && code >= http.StatusOK {
		a.code = code
	}
}

// maxProblem bounds the error response of the API, in bytes.
const maxProblem = 16 << 10

func (a *answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	if a.code >= http.StatusMultipleChoices {
		a.problem.Write(b[:min(len(b), maxProblem-a.problem.Len())])
		return len(b), nil
	}
	if a.err == nil {
		_, a.err = a.body.Write(b)
	}
	return len(b), nil
}

// message returns the message of an error response.
func (a *answer) message() string {
	var status metav1.Status
	if json.Unmarshal(a.problem.Bytes(), &status) == nil && status.Message != "" {
		return status.Message
	}
	if text := strings.TrimSpace(a.problem.String()); text != "" {
		return text
	}
	return http.StatusText(a.code)
}

// reference identifies an object, in the form that the page sends.
type reference struct {
	Version   string `json:"version"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// resource is the resource of a kind.
type resource struct {
	metav1.GroupVersionResource
	namespaced bool
}

// resourceOf finds a resource by its kind or by its name.
func (v *viewer) resourceOf(apiVersion, kind string) (*resource, error) {
	group, version, ok := strings.Cut(apiVersion, "/")
	base := path.Join("/apis", url.PathEscape(group), url.PathEscape(version))
	if !ok {
		group, version, base = "", apiVersion, path.Join("/api", url.PathEscape(apiVersion))
	}
	var list metav1.APIResourceList
	if err := v.get(base, &list); err != nil {
		return nil, err
	}
	i := slices.IndexFunc(list.APIResources, func(r metav1.APIResource) bool {
		return (r.Kind == kind || r.Name == kind || r.SingularName == kind) && !strings.Contains(r.Name, "/")
	})
	if i < 0 {
		return nil, &refused{http.StatusNotFound, "the server has no kind " + kind + " in " + apiVersion}
	}
	r := &list.APIResources[i]
	return &resource{metav1.GroupVersionResource{Group: group, Version: version, Resource: r.Name}, r.Namespaced}, nil
}

// inside returns the path of a resource of a group and version in a namespace.
func inside(group, version, namespace string, rest ...string) string {
	parts := []string{"/apis", group, version}
	if group == "" {
		parts = []string{"/api", version}
	}
	if namespace != "" {
		parts = append(parts, "namespaces", namespace)
	}
	parts = append(parts, rest...)
	for i := 1; i < len(parts); i++ {
		parts[i] = url.PathEscape(parts[i])
	}
	return strings.Join(parts, "/")
}

// maxObject bounds an object, in bytes. No server stores larger objects.
const maxObject = 4 << 20

func (v *viewer) find(ref *reference) (*resource, map[string]any, error) {
	if ref.Name == "" {
		return nil, nil, &refused{http.StatusBadRequest, "name the object"}
	}
	r, err := v.resourceOf(ref.Version, ref.Kind)
	if err != nil {
		return nil, nil, err
	}
	if !r.namespaced {
		ref.Namespace = ""
	} else if ref.Namespace == "" {
		ref.Namespace = metav1.NamespaceDefault
	}
	var object map[string]any
	left := v.left
	v.left = min(left, maxObject)
	err = v.get(inside(r.Group, r.Version, ref.Namespace, r.Resource, ref.Name)+"?includeUninitialized=true", &object)
	v.left = left
	return r, object, err
}

// why returns the message of an error, with a remedy for the viewer.
func why(err error) string {
	if code := codeOf(err); code == http.StatusUnauthorized || code == http.StatusForbidden {
		return "Not allowed: " + err.Error()
	}
	return err.Error()
}
