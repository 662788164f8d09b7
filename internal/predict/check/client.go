package check

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/internal/predict/offline"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
)

// client talks to the server as one user. It is safe for concurrent use.
type client struct {
	host string
	http *http.Client
}

func newClient(config *rest.Config, as string, groups []string) (*client, error) {
	config = rest.CopyConfig(config)
	config.UserAgent = "gatehouse check"
	config.Impersonate = rest.ImpersonationConfig{UserName: as, Groups: groups}
	c, err := rest.HTTPClientFor(config)
	return &client{config.Host, c}, err
}

// request is a request to the server.
type request struct {
	method, path string
	query        url.Values
	contentType  string
	body         []byte
}

// answer is the server's answer. status is set unless the code says success.
type answer struct {
	code     int
	body     []byte
	status   *metav1.Status
	warnings []string
	// warned are the acts of policies that may be the causes of the warnings.
	warned []trace.Act
	trace  string
}

func (a *answer) ok() bool { return a.status == nil }

// err returns the refusal as an error, nil for none.
func (a *answer) err(q request) error {
	if a.ok() {
		return nil
	}
	return fmt.Errorf("%s %s: %s", q.method, q.path, a.status.Message)
}

// do sends a request. The error says that there is no answer.
func (c *client) do(ctx context.Context, q request) (*answer, error) {
	r, err := http.NewRequestWithContext(ctx, q.method, c.host+q.path, bytes.NewReader(q.body))
	if err != nil {
		return nil, err
	}
	r.URL.RawQuery = q.query.Encode()
	r.Header.Set("Accept", "application/json")
	if q.contentType != "" {
		r.Header.Set("Content-Type", q.contentType)
	}
	response, err := c.http.Do(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	a := &answer{code: response.StatusCode, trace: response.Header.Get(admission.TraceHeader)}
	if a.body, err = io.ReadAll(response.Body); err != nil {
		return nil, fmt.Errorf("%s %s: %w", q.method, q.path, err)
	}
	warnings, _ := utilnet.ParseWarningHeaders(response.Header["Warning"])
	for _, w := range warnings {
		a.warnings = append(a.warnings, w.Text)
	}
	if a.code < 200 || a.code > 299 {
		a.status = statusOf(a.code, a.body)
	}
	return a, nil
}

// must is do for requests that the server refuses only because of a fault. A refusal is an error.
func (c *client) must(ctx context.Context, q request, into any) error {
	a, err := c.do(ctx, q)
	if err == nil {
		err = a.err(q)
	}
	if err != nil || into == nil {
		return err
	}
	return json.Unmarshal(a.body, into)
}

// collection returns the path of the objects of a kind in a namespace.
func collection(k *offline.Kind, namespace string) string {
	p := path.Join("/apis", k.Resource.Group, k.Resource.Version)
	if k.Resource.Group == "" {
		p = path.Join("/api", k.Resource.Version)
	}
	if k.Namespaced && namespace != "" {
		p += "/namespaces/" + url.PathEscape(namespace)
	}
	return p + "/" + k.Resource.Resource
}

// bodyOf returns an object as JSON.
func bodyOf(content map[string]any) []byte {
	data, err := json.Marshal(content)
	if err != nil {
		panic(fmt.Sprintf("check: an object that was read from JSON: %v", err))
	}
	return data
}
