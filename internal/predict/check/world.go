package check

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	apiadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/internal/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/report"
	"github.com/gatehouse-dev/gatehouse/internal/server"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/resources"
)

// World is a server with the objects of a set. It judges requests by them, and does not store the
// objects of the requests. It is safe for concurrent use.
type World struct {
	run *run
	// Report has the verdicts on the objects of the set.
	Report *Report

	// unlabelled are the namespaces whose labels nobody knows.
	unlabelled map[string]bool
	// connected makes plans. The first call of Plan sets it.
	connect     sync.Once
	connected   *offline.World
	unconnected error
}

// Open makes a World. Its objects are made before the policies and webhooks that are among them.
// The error says that there is no World; the faults of the objects are in the Report. The caller
// must close the World.
func Open(ctx context.Context, o Options) (*World, error) {
	o.rehearse = true
	report := newReport(&o)
	begin := time.Now()
	s, err := start(ctx, &o)
	if err != nil {
		return nil, fmt.Errorf("starting a server to test with: %w", err)
	}
	report.Summary.StartSeconds = time.Since(begin).Seconds()
	begin = time.Now()
	r := &run{Options: o, server: s, report: report}
	if err := r.applyInOrder(ctx); err != nil {
		s.stop()
		return nil, err
	}
	r.weighUnseen()
	report.sort()
	report.count()
	report.Summary.CheckSeconds = time.Since(begin).Seconds()
	return &World{run: r, Report: report}, nil
}

// Close ends the server.
func (w *World) Close() { w.run.server.stop() }

// Kinds returns the kinds that the server serves.
func (w *World) Kinds() *offline.Kinds { return w.run.kinds }

// Request is a request that a World judges.
type Request struct {
	// Method is POST, PUT, PATCH, DELETE or GET, which is for CONNECT.
	Method          string
	Kind            *offline.Kind
	Namespace, Name string
	// Subresource is empty for the object itself.
	Subresource string
	Query       url.Values
	ContentType string
	Body        []byte
	// User makes the request.
	User user.DefaultInfo
	// Rehearsal says how the request is judged.
	server.Rehearsal
}

// Answer is the answer of a World to a request.
type Answer struct {
	Code int
	Body []byte
	// Status is set unless the code says success.
	Status   *metav1.Status
	Warnings []string
	// Tried has the object in place of Body when only admission ran; otherwise it is nil.
	Tried *resources.Tried
}

// Weigh is Judge without what only a client needs, in a fraction of its time, where that can be:
// creates, updates and deletions with what they find in Rehearsal.Stored. Existing objects are not
// looked for.
func (w *World) Weigh(ctx context.Context, q *Request) (*Answer, error) {
	t := &resources.Trial{Resource: q.Kind.Resource, Subresource: q.Subresource, Namespace: q.Namespace, Name: q.Name, Body: q.Body}
	switch {
	case q.Method == http.MethodPost:
		t.Operation, t.Name = apiadmission.Create, ""
	case q.Method == http.MethodPut && len(q.Stored) > 0:
		t.Operation = apiadmission.Update
	case q.Method == http.MethodDelete && len(q.Stored) > 0:
		t.Operation = apiadmission.Delete
	default:
		return w.Judge(ctx, q)
	}
	made, ok := w.run.server.server.Try(ctx, t, &q.User, &q.Rehearsal)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case !ok:
		return w.Judge(ctx, q)
	}
	a := &Answer{Code: http.StatusOK, Status: made.Status, Warnings: made.Warnings, Tried: made.Tried}
	switch {
	case a.Status != nil:
		a.Code = int(a.Status.Code)
	case t.Operation == apiadmission.Create:
		a.Code = http.StatusCreated
	}
	return a, nil
}

// Judge sends a request through the server's handlers, and returns the answer.
func (w *World) Judge(ctx context.Context, q *Request) (*Answer, error) {
	at := collection(q.Kind, q.Namespace)
	if q.Name != "" && q.Method != http.MethodPost || q.Subresource != "" {
		at += "/" + url.PathEscape(q.Name)
	}
	if q.Subresource != "" {
		at = path.Join(at, q.Subresource)
	}
	r, err := http.NewRequestWithContext(ctx, q.Method, "https://gatehouse.invalid"+at, bytes.NewReader(q.Body))
	if err != nil {
		return nil, err
	}
	r.URL.RawQuery = q.Query.Encode()
	r.URL.Scheme, r.URL.Host = "", ""
	r.Header = http.Header{"Accept": {jsonType}, "User-Agent": {"gatehouse test"}}
	if q.ContentType != "" {
		r.Header.Set("Content-Type", q.ContentType)
	}
	impersonate(r.Header, &q.User)
	out := &response{header: http.Header{}}
	w.run.server.server.Rehearse(out, r, &q.Rehearsal)
	a := &Answer{Code: cmp.Or(out.code, http.StatusOK), Body: out.body.Bytes()}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	warnings, _ := utilnet.ParseWarningHeaders(out.header["Warning"])
	for _, warning := range warnings {
		a.Warnings = append(a.Warnings, warning.Text)
	}
	if a.Code < 200 || a.Code > 299 {
		a.Status = statusOf(a.Code, a.Body)
	}
	return a, nil
}

// impersonate puts a user into the headers of a request.
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

// response keeps an answer.
type response struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

var (
	_ io.Writer    = (*response)(nil)
	_ http.Flusher = (*response)(nil)
)

func (r *response) Header() http.Header { return r.header }
func (r *response) Flush()              {}

func (r *response) WriteHeader(code int) {
	if r.code == 0 && code >= 200 {
		r.code = code
	}
}

func (r *response) Write(data []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	return r.body.Write(data)
}

// statusOf reads the answer to a request that failed.
func statusOf(code int, body []byte) *metav1.Status {
	status := &metav1.Status{}
	if json.Unmarshal(body, status) != nil || status.Kind != "Status" {
		return &metav1.Status{Code: int32(code), Message: string(bytes.TrimSpace(body))}
	}
	return status
}

// Get returns an object of the World; nil when it does not exist.
func (w *World) Get(ctx context.Context, kind *offline.Kind, namespace, name string) (*unstructured.Unstructured, error) {
	q := request{method: http.MethodGet, path: collection(kind, namespace) + "/" + url.PathEscape(name)}
	a, err := w.run.admin.do(ctx, q)
	if err != nil || a.code == http.StatusNotFound {
		return nil, err
	}
	if err := a.err(q); err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{}
	return u, u.UnmarshalJSON(a.body)
}

// Label gives a namespace labels, in addition to those that every namespace has, and returns when
// requests are judged by them. It makes the namespace if it does not exist.
func (w *World) Label(ctx context.Context, namespace string, labels map[string]string) error {
	const namespaces = "/api/v1/namespaces"
	at := namespaces + "/" + url.PathEscape(namespace)
	for {
		object := map[string]any{}
		a, err := w.run.admin.do(ctx, request{method: http.MethodGet, path: at})
		if err != nil {
			return err
		}
		q := request{method: http.MethodPut, path: at, contentType: jsonType}
		switch {
		case a.code == http.StatusNotFound:
			object = map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace}}
			q.method, q.path = http.MethodPost, namespaces
		case !a.ok():
			return a.err(q)
		default:
			if err := json.Unmarshal(a.body, &object); err != nil {
				return err
			}
		}
		u := &unstructured.Unstructured{Object: object}
		u.SetLabels(labels)
		q.body = bodyOf(object)
		a, err = w.run.admin.do(ctx, q)
		if err != nil {
			return err
		}
		if a.code == http.StatusConflict {
			continue
		}
		if err := a.err(q); err != nil {
			return err
		}
		if q.method == http.MethodPost {
			if err := w.run.furnishNamespace(ctx, namespace); err != nil {
				return err
			}
		}
		return w.run.server.server.CaughtUp(ctx)
	}
}

// Labels returns the labels of a namespace; nil when it does not exist.
func (w *World) Labels(ctx context.Context, namespace string) (map[string]string, error) {
	q := request{method: http.MethodGet, path: "/api/v1/namespaces/" + url.PathEscape(namespace)}
	a, err := w.run.admin.do(ctx, q)
	if err != nil || a.code == http.StatusNotFound {
		return nil, err
	}
	u := &unstructured.Unstructured{}
	if err := a.err(q); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(a.body, &u.Object); err != nil {
		return nil, err
	}
	if labels := u.GetLabels(); labels != nil {
		return labels, nil
	}
	return map[string]string{}, nil
}

// UnknownLabels is in the reason of a step of a plan that depends on labels which nobody knows.
const UnknownLabels = "nobody knows the labels"

// Unlabelled says which namespaces have labels that nobody knows: what depends on these is unknown to Plan. It must
// be called before Plan.
func (w *World) Unlabelled(names map[string]bool) { w.unlabelled = names }

// Plan returns what admission would do with a request, including the entries that do not apply.
func (w *World) Plan(ctx context.Context, q *offline.Request) (*plan.Plan, error) {
	// Requests do not change the World, so one connection serves all plans.
	w.connect.Do(func() {
		w.connected, w.unconnected = offline.Connect(context.WithoutCancel(ctx), w.run.server.admin, w.run.kinds)
		if w.unconnected != nil {
			return
		}
		w.connected.Registrations.Kubernetes = !w.run.Gatehouse
		read := w.connected.Namespace
		w.connected.Namespace = func(ctx context.Context, name string) (*corev1.Namespace, error) {
			if w.unlabelled[name] {
				return nil, fmt.Errorf("%w: %s of the namespace %s", plan.ErrUnknown, UnknownLabels, name)
			}
			return read(ctx, name)
		}
	})
	connected, err := w.connected, w.unconnected
	if err != nil {
		return nil, err
	}
	q.All = true
	return connected.Plan(ctx, q)
}

// ofWorlds is the order in which a World is made: objects come before the registrations that
// would judge them.
var ofWorlds = []stage{definitions, readings, grants, params, fixed, others, registrations, bindings}

// inOrder returns the order of the stages of a run.
func (r *run) inOrder() []stage {
	if r.rehearse {
		return ofWorlds
	}
	list := make([]stage, 0, stages)
	for at := definitions; at < stages; at++ {
		list = append(list, at)
	}
	return list
}

// Failures returns the findings for which a World differs from its files, one for each line.
func (r *Report) Failures() []report.Finding {
	var list []report.Finding
	for i := range r.Findings {
		if f := &r.Findings[i]; f.Level == report.Error {
			list = append(list, *f)
		}
	}
	return list
}

// plainly creates an object as it was written.
func (r *run) plainly(ctx context.Context, c *client, t *task) (*answer, error) {
	object := t.sent.DeepCopy()
	pruneNulls(object.Object)
	object.SetResourceVersion("")
	if convertsByWebhook(object) {
		object.Object["spec"].(map[string]any)["conversion"] = map[string]any{"strategy": "None"}
	}
	q := t.query(serverSideManager)
	a, err := c.do(ctx, request{method: http.MethodPost, path: collection(t.kind, t.namespace), contentType: jsonType, query: q, body: bodyOf(object.Object)})
	if err != nil || a.code != http.StatusConflict || t.name == "" {
		return a, err
	}
	// Every cluster has this object.
	current := map[string]any{}
	if err := c.must(ctx, request{method: http.MethodGet, path: t.path()}, &current); err != nil {
		return nil, err
	}
	object.SetResourceVersion(text(current, "metadata", "resourceVersion"))
	return c.do(ctx, request{method: http.MethodPut, path: t.path(), contentType: jsonType, query: q, body: bodyOf(object.Object)})
}
