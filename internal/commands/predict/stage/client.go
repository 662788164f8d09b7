package stage

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/kit/inprocess"
	"github.com/gatehouse-dev/gatehouse/internal/server"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/resources"
)

// Client makes requests that take effect, as one user. It is safe for concurrent use.
type Client struct {
	stage *Stage
	user  user.DefaultInfo
}

// Admin returns the client of an administrator with all rights.
func (s *Stage) Admin() *Client {
	return s.Client("gatehouse-admin", []string{user.SystemPrivilegedGroup})
}

// Client returns the client of a user in the given groups and in system:authenticated.
func (s *Stage) Client(name string, groups []string) *Client {
	return &Client{s, user.DefaultInfo{Name: name, Groups: groups}}
}

// HTTPRequest is a request to the server.
type HTTPRequest struct {
	Method, Path string
	Query        url.Values
	ContentType  string
	Body         []byte
}

// Answer is the server's response.
type Answer struct {
	Code int
	Body []byte
	// Status is nil if the code is a success.
	Status   *metav1.Status
	Warnings []string
	// Trace is the admission trace of the request.
	Trace *trace.Trace
	// Tried has the object instead of Body if only admission and validation ran; otherwise it is nil.
	Tried *resources.Tried
}

// OK reports whether the request succeeded.
func (a *Answer) OK() bool { return a.Status == nil }

// Err returns a rejection of the request as an error; nil if it succeeded.
func (a *Answer) Err(q HTTPRequest) error {
	if a.OK() {
		return nil
	}
	return fmt.Errorf("%s %s: %s", q.Method, q.Path, a.Status.Message)
}

// Do makes a request. The error reports that there is no response.
func (c *Client) Do(ctx context.Context, q HTTPRequest) (*Answer, error) {
	return c.stage.send(ctx, q, &c.user, nil)
}

// Judge evaluates a create by admission and validation alone, as Stage.Judge does.
func (c *Client) Judge(ctx context.Context, q *Question) (*Answer, error) {
	q.Method, q.ContentType, q.User = http.MethodPost, JSON, c.user
	q.User.Groups = append(slices.Clone(c.user.Groups), user.AllAuthenticated)
	return c.stage.Judge(ctx, q)
}

// Must is Do for requests that only fail because of a bug: a rejection is an error. into, which may be nil, receives
// the object of the response.
func (c *Client) Must(ctx context.Context, q HTTPRequest, into any) error {
	a, err := c.Do(ctx, q)
	if err == nil {
		err = a.Err(q)
	}
	if err != nil || into == nil {
		return err
	}
	return json.Unmarshal(a.Body, into)
}

// send sends a request through the server's handlers. With a rehearsal, the request is evaluated and has no effect.
func (s *Stage) send(ctx context.Context, q HTTPRequest, u *user.DefaultInfo, rehearsal *server.Rehearsal) (*Answer, error) {
	// The host is never resolved.
	r, err := http.NewRequestWithContext(ctx, q.Method, "https://gatehouse.invalid"+q.Path, bytes.NewReader(q.Body))
	if err != nil {
		return nil, err
	}
	r.URL.RawQuery = q.Query.Encode()
	r.Header = http.Header{"Accept": {JSON}, "User-Agent": {"gatehouse"}}
	if q.ContentType != "" {
		r.Header.Set("Content-Type", q.ContentType)
	}
	impersonate(r.Header, u)
	out, traced, err := s.serve(r, rehearsal)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, fmt.Errorf("%s %s: %w", q.Method, q.Path, err)
	}
	a := &Answer{Code: out.Code, Body: out.Body.Bytes(), Trace: traced}
	warnings, _ := utilnet.ParseWarningHeaders(out.Header()["Warning"])
	for _, warning := range warnings {
		a.Warnings = append(a.Warnings, warning.Text)
	}
	if a.Code < 200 || a.Code > 299 {
		a.Status = statusOf(a.Code, a.Body)
	}
	return a, nil
}

// serve calls the server's handlers.
func (s *Stage) serve(r *http.Request, rehearsal *server.Rehearsal) (out *httptest.ResponseRecorder, traced *trace.Trace, err error) {
	out, err = inprocess.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if rehearsal == nil {
			traced = s.server.Serve(w, r)
			return
		}
		s.server.Rehearse(w, r, rehearsal)
		traced = rehearsal.Trace()
	}), r)
	return out, traced, err
}

// Config returns a client configuration that sends requests to the server's handlers, as the server itself.
func (s *Stage) Config() *rest.Config {
	return &rest.Config{Host: "https://gatehouse.invalid", QPS: -1, UserAgent: "gatehouse", Transport: s.inside}
}

// Response returns a JSON response to a request.
func Response(r *http.Request, code int, body []byte) *http.Response {
	return &http.Response{
		StatusCode: code, Status: fmt.Sprintf("%d %s", code, http.StatusText(code)), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {JSON}}, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: r,
	}
}

// Reviewed returns a webhook's response to a review. The response gets the uid of the request, unless it has one.
func Reviewed(sent []byte, response map[string]any) ([]byte, error) {
	var review struct {
		APIVersion string `json:"apiVersion"`
		Request    struct {
			UID string `json:"uid"`
		} `json:"request"`
	}
	if err := json.Unmarshal(sent, &review); err != nil {
		return nil, err
	}
	if _, ok := response["uid"]; !ok {
		response["uid"] = review.Request.UID
	}
	return json.Marshal(map[string]any{"apiVersion": review.APIVersion, "kind": "AdmissionReview", "response": response})
}

// impersonate sets the impersonation headers for a user.
func impersonate(h http.Header, u *user.DefaultInfo) {
	h.Set("Impersonate-User", u.Name)
	if u.UID != "" {
		h.Set("Impersonate-Uid", u.UID)
	}
	for _, group := range u.Groups {
		h.Add("Impersonate-Group", group)
	}
	for _, key := range slices.Sorted(maps.Keys(u.Extra)) {
		for _, value := range u.Extra[key] {
			h.Add("Impersonate-Extra-"+url.PathEscape(key), value)
		}
	}
}

// statusOf reads the response to a request that failed.
func statusOf(code int, body []byte) *metav1.Status {
	status := &metav1.Status{}
	if json.Unmarshal(body, status) != nil || status.Kind != "Status" {
		return &metav1.Status{Code: int32(code), Message: string(bytes.TrimSpace(body))}
	}
	return status
}

// JSON is the content type of objects.
const JSON = "application/json"

// Collection returns the path of the objects of a kind in a namespace.
func Collection(k *offline.Kind, namespace string) string {
	p := path.Join("/apis", k.Resource.Group, k.Resource.Version)
	if k.Resource.Group == "" {
		p = path.Join("/api", k.Resource.Version)
	}
	if k.Namespaced && namespace != "" {
		p += "/namespaces/" + url.PathEscape(namespace)
	}
	return p + "/" + k.Resource.Resource
}

// Path returns the path of an object.
func Path(k *offline.Kind, namespace, name string) string {
	return Collection(k, namespace) + "/" + url.PathEscape(name)
}

// Encode returns an object as JSON.
func Encode(content map[string]any) []byte {
	data, err := json.Marshal(content)
	if err != nil {
		panic(fmt.Sprintf("stage: an object that was read from JSON: %v", err))
	}
	return data
}
