package suite

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/conversion/queryparams"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	kjson "sigs.k8s.io/json"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/rejection"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/stage"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/suite/engines"
	"github.com/gatehouse-dev/gatehouse/internal/engine/expression"
	"github.com/gatehouse-dev/gatehouse/internal/server"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/catalog"
)

// administrator makes the requests of tests that name no user, as in kubeadm.
var administrator = user.DefaultInfo{Name: "kubernetes-admin", Groups: []string{"system:masters"}}

// Outcome is the result of a test's request.
type Outcome struct {
	Allowed bool                `json:"allowed"`
	Code    int                 `json:"code"`
	Reason  string              `json:"reason,omitempty"`
	Message string              `json:"message,omitempty"`
	By      []rejection.Decider `json:"by,omitempty"`
	Causes  []OutcomeCause      `json:"causes,omitempty"`
	// Warnings are for the client, and Annotations for the audit log.
	Warnings    []string          `json:"warnings,omitempty"`
	Annotations map[string]string `json:"auditAnnotations,omitempty"`
	// Object is the object to store; nil for a rejection and a deletion.
	Object map[string]any `json:"-"`
	// Called are the webhooks that were called, as CONFIGURATION/NAME.
	Called []string `json:"called,omitempty"`
	// Cost is the cost of all CEL expressions of policies.
	Cost uint64 `json:"cost"`
	// Added are the fields that the stored object has in addition to oldObject, each as PATH=VALUE.
	Added []string `json:"-"`
	// Unanswered lists webhooks that match the request and have neither an answer nor a program.
	Unanswered []string `json:"unanswered,omitempty"`

	// named reports whether the response of a webhook named the policy of the test.
	named bool
	// invalid reports whether the validation of the object's kind was skipped.
	invalid bool

	sent  *stage.Question
	plan  *offline.Request
	trace *trace.Trace
}

// settle frees memory that is not needed after the test.
func (o *Outcome) settle(status Status) {
	o.sent, o.plan, o.trace = nil, nil, nil
	if status != Failed {
		o.Object = nil
	}
}

// Sent returns the request that was evaluated; nil without Options.Keep.
func (o *Outcome) Sent() *stage.Question { return o.sent }

// OutcomeCause is one of the causes of a rejection.
type OutcomeCause struct {
	Field   string `json:"field,omitempty"`
	Message string `json:"message,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

// judged is one evaluation that a rehearsal reported.
type judged struct {
	entry *registration.Entry
	e     *expression.Expression
	seen  *expression.Seen
}

// witness receives evaluations, also concurrently.
type witness func(*registration.Entry, *expression.Expression, *expression.Seen)

// watcher collects evaluations.
type watcher struct {
	mu   sync.Mutex
	list []judged
}

func (w *watcher) saw(entry *registration.Entry, e *expression.Expression, seen *expression.Seen) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = append(w.list, judged{entry, e, seen})
}

// errUnjudged is the reason why a test cannot be evaluated. A test of another tool's suite is then skipped.
type errUnjudged struct{ error }

// unmade reports why the request of a test cannot be made.
func unmade(err error) error {
	return errUnjudged{fmt.Errorf("the request cannot be made: %w", err)}
}

// build builds the request of a test.
func (t *Test) build(ctx context.Context, w *stage.Stage, o *Outcome) error {
	q := &t.request
	kind, err := q.kindIn(w)
	if err != nil {
		return unmade(err)
	}
	u := administrator
	if q.user != nil {
		u = *q.user
	}
	out := &stage.Question{Kind: kind, Subresource: q.subresource, User: u, Query: url.Values{"fieldManager": {"gatehouse-test"}}}
	out.Name = cmp.Or(q.name, at(q.old, "metadata", "name"), at(q.object, "metadata", "name"))
	if kind.Namespaced {
		out.Namespace = cmp.Or(q.namespace, at(q.object, "metadata", "namespace"), at(q.old, "metadata", "namespace"), "default")
	}
	out.DryRun = q.dryRun
	out.Authorize = t.Suite.authorize
	if q.authorize != nil {
		out.Authorize = *q.authorize
	}
	if q.timeout > 0 {
		out.Query.Set("timeout", q.timeout.String())
	}
	var old *unstructured.Unstructured
	if q.old != nil {
		old = &unstructured.Unstructured{Object: runtime.DeepCopyJSON(q.old)}
		stored(old, out.Namespace)
		if o.Added, err = complete(ctx, w, old); err != nil {
			return unmade(fmt.Errorf("oldObject: %w", err))
		}
		out.Stored = append(out.Stored, storedAs(kind, old)...)
	}
	var object *unstructured.Unstructured
	if q.object != nil {
		object = &unstructured.Unstructured{Object: runtime.DeepCopyJSON(q.object)}
		if kind.Namespaced && object.GetNamespace() == "" {
			object.SetNamespace(out.Namespace)
		}
	}
	out.ContentType = "application/json"
	switch q.operation {
	case opCreate:
		out.Method = http.MethodPost
	case opConnect:
		out.Method, out.Connect = http.MethodPost, true
		if q.subresource == "" {
			return unmade(errors.New("a CONNECT needs a subresource, such as exec"))
		}
		if err := connect(out, q.object); err != nil {
			return unmade(err)
		}
		object, out.ContentType = nil, ""
	case opDelete:
		out.Method, out.ContentType = http.MethodDelete, ""
	case opUpdate:
		out.Method = http.MethodPut
		if q.patch != nil {
			out.Method, out.ContentType = http.MethodPatch, string(q.patch.kind)
			if q.patch.kind == types.ApplyYAMLPatchType {
				out.Query.Set("force", "true")
			}
			if out.Body, err = json.Marshal(q.patch.body); err != nil {
				return unmade(err)
			}
			break
		}
		if object == nil {
			return unmade(errors.New("an UPDATE needs an object or a patch"))
		}
		if object.GetResourceVersion() == "" {
			current := old
			if current == nil {
				if current, err = w.Get(ctx, kind, out.Namespace, out.Name); err != nil {
					return err
				}
			}
			if current != nil {
				object.SetResourceVersion(current.GetResourceVersion())
			}
		}
	}
	if object != nil && out.Body == nil {
		if out.Body, err = json.Marshal(object.Object); err != nil {
			return unmade(err)
		}
	}
	if out.Method != http.MethodDelete && !out.Connect {
		out.Query.Set("fieldValidation", cmp.Or(q.fieldValidation, metav1.FieldValidationStrict))
	}
	o.sent = out
	o.plan = &offline.Request{Operation: q.operation, Kind: kind, Subresource: q.subresource, Namespace: out.Namespace, Name: out.Name, Object: object, Old: old, DryRun: q.dryRun, User: &u}
	return nil
}

// kindIn returns the kind of the object that a request is about, in the version of the request. The object sent to a
// subresource may have another kind, such as Scale.
func (q *request) kindIn(w *stage.Stage) (*offline.Kind, error) {
	sent := at(q.object, "kind")
	version := q.apiVersion
	switch about := cmp.Or(q.kind, at(q.old, "kind"), sent); {
	case version != "":
		return kindIn(w, version, about)
	case q.object != nil && (about == sent || q.subresource == ""):
		kind, err := kindIn(w, at(q.object, "apiVersion"), about)
		if err != nil || q.subresource == "" || !kind.Takes(q.subresource).Empty() {
			return kind, err
		}
		return w.Kinds().Parent(q.subresource, kind.Kind)
	case q.old != nil:
		return kindIn(w, at(q.old, "apiVersion"), about)
	default:
		return kindIn(w, "", about)
	}
}

// connect converts the object of a CONNECT, such as PodExecOptions, to the query of its request.
func connect(q *stage.Question, object map[string]any) error {
	if object == nil {
		return nil
	}
	kind := q.Kind.Takes(q.Subresource)
	if got := schema.FromAPIVersionAndKind(at(object, "apiVersion"), at(object, "kind")); got != kind {
		return fmt.Errorf("object: a CONNECT of %s/%s takes %s of %s, and not %s of %s", q.Kind.Resource.Resource, q.Subresource, kind.Kind, kind.GroupVersion(), got.Kind, got.GroupVersion())
	}
	options, err := catalog.Scheme.New(kind)
	if err != nil {
		return err
	}
	strict, err := kjson.UnmarshalStrict(stage.Encode(object), options)
	if err = errors.Join(append(strict, err)...); err != nil {
		return fmt.Errorf("object: %w", err)
	}
	query, err := queryparams.Convert(options)
	for name, values := range query {
		switch name {
		case "apiVersion", "kind":
		case "path":
			q.Subpath = "/" + strings.TrimPrefix(values[0], "/")
		default:
			q.Query[name] = values
		}
	}
	return err
}

// kindIn finds a kind of a stage; without a version, by its name.
func kindIn(w *stage.Stage, apiVersion, kind string) (*offline.Kind, error) {
	if apiVersion == "" {
		return w.Kinds().Named(kind)
	}
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return nil, err
	}
	found := w.Kinds().Of(gv.WithKind(kind))
	if found.Guessed {
		return nil, fmt.Errorf("no matches for kind %q in version %q: the test environment has no CRD of it", kind, apiVersion)
	}
	return found, nil
}

// stored adds the metadata of a stored object.
func stored(u *unstructured.Unstructured, namespace string) {
	if namespace != "" && u.GetNamespace() == "" {
		u.SetNamespace(namespace)
	}
	if u.GetUID() == "" {
		u.SetUID("00000000-0000-4000-8000-000000000000")
	}
	if at(u.Object, "metadata", "creationTimestamp") == "" {
		_ = unstructured.SetNestedField(u.Object, "2026-01-01T00:00:00Z", "metadata", "creationTimestamp")
	}
	u.SetResourceVersion("1")
}

// complete adds to an object the fields that a create would have stored, and returns them as PATH=VALUE (S24.3).
func complete(ctx context.Context, w *stage.Stage, u *unstructured.Unstructured) (added []string, err error) {
	kind, err := kindIn(w, u.GetAPIVersion(), u.GetKind())
	if err != nil {
		return nil, err
	}
	made, err := w.AsStored(ctx, kind, u)
	if err != nil {
		return nil, err
	}
	var fill func(at string, into, from map[string]any)
	fill = func(at string, into, from map[string]any) {
		for _, key := range slices.Sorted(maps.Keys(from)) {
			value, path := from[key], strings.TrimPrefix(at+"."+key, ".")
			given, there := into[key]
			switch inner, ok := value.(map[string]any); {
			case ok && !there && len(inner) > 0:
				given = map[string]any{}
				into[key] = given
				fallthrough
			case ok && there:
				if outer, ok := given.(map[string]any); ok {
					fill(path, outer, inner)
				}
			case !there && !ok && value != nil:
				into[key] = value
				added = append(added, path+"="+compact(value))
			}
		}
	}
	fill("", u.Object, made.Object)
	return added, nil
}

// judge evaluates the request of a test. saw, if set, receives each evaluation of an expression.
func (t *Test) judge(ctx context.Context, w *stage.Stage, calls *callers, saw witness) (*Outcome, error) {
	o, err := t.ask(ctx, w, calls, saw, false)
	if err == nil && t.Suite.engine != "" && !o.Allowed && len(o.By) > 0 && o.By[0].Plugin == rejection.API && t.request.operation == opCreate && t.request.subresource == "" {
		// The suites of other tools contain objects that no API server accepts.
		if invalid, err := t.ask(ctx, w, calls, saw, true); err == nil {
			invalid.invalid = true
			return invalid, nil
		}
	}
	return o, err
}

// ask sends the request of a test. If invalid is set, the validation of its kind is skipped.
func (t *Test) ask(ctx context.Context, w *stage.Stage, calls *callers, saw witness, invalid bool) (*Outcome, error) {
	o := &Outcome{}
	if err := t.build(ctx, w, o); err != nil {
		return nil, err
	}
	q := o.sent
	var mu sync.Mutex
	q.Answer = func(hook *registration.Entry, req *http.Request) (*http.Response, error) {
		response, err, unanswered := calls.answer(t, hook, req)
		if unanswered {
			mu.Lock()
			if name := hook.String(); !slices.Contains(o.Unanswered, name) {
				o.Unanswered = append(o.Unanswered, name)
			}
			mu.Unlock()
		}
		return response, err
	}
	q.Saw, q.Registrations = saw, calls.registrations
	var unconverted atomic.Pointer[errUnjudged]
	ctx = context.WithValue(ctx, unconvertedKey{}, &unconverted)
	asks := w.Ask
	if q.Invalid = invalid; invalid {
		asks = w.Judge
	}
	a, err := asks(ctx, q)
	if err == nil && a.Tried != nil && a.Tried.Object != nil {
		a.Body, err = a.Tried.Encode(a.Tried.Object)
	}
	if err != nil {
		return nil, err
	}
	if why := unconverted.Load(); why != nil {
		return nil, *why
	}
	mu.Lock()
	defer mu.Unlock()
	o.read(q, a)
	calls.policies(o)
	return o, nil
}

// read reads a response.
func (o *Outcome) read(q *stage.Question, a *stage.Answer) {
	o.Code, o.Warnings, o.Annotations = a.Code, a.Warnings, q.Rehearsal.Annotations()
	o.Allowed = a.Status == nil || q.Rehearsal.Connected()
	o.trace = q.Rehearsal.Trace()
	if q.Rehearsal.Connected() {
		o.Code = http.StatusOK
	}
	if o.Allowed && q.Method != http.MethodDelete && !q.Rehearsal.Connected() {
		object := map[string]any{}
		if json.Unmarshal(a.Body, &object) == nil && object["kind"] != "Status" {
			o.Object = object
		}
	}
	course := q.Course(a)
	o.By, o.Called, o.Cost = course.By, course.Called, course.Cost
	if o.Allowed {
		return
	}
	o.Reason, o.Message = string(a.Status.Reason), a.Status.Message
	if d := a.Status.Details; d != nil {
		for _, c := range d.Causes {
			o.Causes = append(o.Causes, OutcomeCause{c.Field, c.Message, string(c.Type)})
		}
	}
}

// callers answers calls of webhooks.
type callers struct {
	// call enables calls of webhooks without an answer or a program.
	call bool
	// started are the services of programs, as NAMESPACE/NAME.
	started map[string]bool
	// engines are the engines whose responses name policies.
	engines []*engines.Engine
	// registrations replaces the active registrations; nil keeps them.
	registrations func(inForce *snapshot.Snapshot) *snapshot.Snapshot
}

// policies adds the engines' policies that a denial names to the deciders of a rejection.
func (c *callers) policies(o *Outcome) {
	if o.Allowed || len(o.By) == 0 || o.By[0].Webhook == "" {
		return
	}
	first := o.By[0]
	for _, e := range c.engines {
		for _, name := range e.Named(o.Message) {
			named := first
			if named.Policy = name; o.By[0].Policy == "" {
				o.By[0] = named
			} else {
				o.By = append(o.By, named)
			}
		}
	}
}

// errRefused is the error of a connection that a test refuses.
var errRefused = errors.New("connection refused")

// answer answers a call. unanswered reports whether the test has no answer for the webhook.
func (c *callers) answer(t *Test, hook *registration.Entry, req *http.Request) (response *http.Response, err error, unanswered bool) {
	for _, list := range [][]answer{t.request.answers, t.Suite.answers} {
		for i := range list {
			if list[i].isFor(hook) {
				response, err = list[i].give(req)
				return response, err, false
			}
		}
	}
	if s := hook.ClientConfig.Service; s != nil && c.started[s.Namespace+"/"+s.Name] || c.call {
		return nil, nil, false
	}
	return nil, fmt.Errorf("the webhook is not called: give the test an answer for it (webhooks), a program (programs, with --start-programs), or say --call"), true
}

// answer is a webhook's answer in a test.
type answer struct {
	line    int
	webhook string
	// response is the response of the review, without its uid; status is the HTTP status.
	response map[string]any
	status   int64
	body     string
	delay    time.Duration
	refuse   bool
}

func (a *answer) isFor(hook *registration.Entry) bool {
	return a.webhook == hook.Name || a.webhook == hook.String() || a.webhook == hook.Configuration
}

// give returns the response to a call.
func (a *answer) give(req *http.Request) (*http.Response, error) {
	if a.refuse {
		return nil, errRefused
	}
	sent, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	if a.delay > 0 {
		timer := time.NewTimer(a.delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-req.Context().Done():
			return nil, context.Cause(req.Context())
		}
	}
	code := cmp.Or(int(a.status), http.StatusOK)
	body := []byte(a.body)
	if a.body == "" {
		answered := maps.Clone(a.response)
		if answered == nil {
			answered = map[string]any{"allowed": true}
		}
		if body, err = stage.Reviewed(sent, answered); err != nil {
			return nil, err
		}
	}
	return stage.Response(req, code, body), nil
}

// title names the object of a request.
func (o *Outcome) title() string {
	q := o.Sent()
	name := strings.TrimPrefix(q.Namespace+"/"+cmp.Or(q.Name, "(no name)"), "/")
	resource := q.Kind.Kind.Kind
	if q.Subresource != "" {
		resource += "/" + q.Subresource
	}
	return fmt.Sprintf("%s %s %s as %s", o.plan.Operation, resource, name, q.User.Name)
}

// storedAs returns an object in the form that a rehearsal needs.
func storedAs(kind *offline.Kind, u *unstructured.Unstructured) []server.Stored {
	resource := kind.Resource.GroupResource()
	if resource.Group == "events.k8s.io" {
		// Both groups of events have one storage.
		resource.Group = ""
	}
	return []server.Stored{{Resource: resource, Namespace: u.GetNamespace(), Name: u.GetName(), Object: u}}
}
