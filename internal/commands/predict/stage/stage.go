package stage

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	apiadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/server"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/resources"
)

// Kinds returns the kinds that the server serves.
func (s *Stage) Kinds() *offline.Kinds { return s.kinds }

// Discover reads the kinds from the server again, after CRDs were created or deleted. It must not run concurrently with
// other uses of the Stage.
func (s *Stage) Discover() (err error) {
	s.kinds, err = offline.Discover(s.Config())
	return err
}

// CaughtUp waits until requests are evaluated against all objects created before.
func (s *Stage) CaughtUp(ctx context.Context) error { return s.server.CaughtUp(ctx) }

// Question is a request that a Stage evaluates without effect. It is used once.
type Question struct {
	// Method is POST, PUT, PATCH, DELETE, or GET for CONNECT.
	Method          string
	Kind            *offline.Kind
	Namespace, Name string
	// Subresource is empty for the object itself. Subpath follows it in the path of a proxy request.
	Subresource, Subpath string
	Query                url.Values
	ContentType          string
	Body                 []byte
	// Object is the object of a create instead of Body. It has the type and the version of the resource, and stays as
	// it is.
	Object runtime.Object
	// User makes the request.
	User user.DefaultInfo
	// Invalid makes Judge evaluate a create even if the validation of its kind would reject the object.
	Invalid bool
	// Rehearsal configures the evaluation of the request.
	server.Rehearsal
}

// Ask sends a question through all of the server's handlers, and returns the response that a client would get.
func (s *Stage) Ask(ctx context.Context, q *Question) (*Answer, error) {
	at := Collection(q.Kind, q.Namespace)
	if q.Name != "" && q.Method != http.MethodPost || q.Subresource != "" {
		at += "/" + url.PathEscape(q.Name)
	}
	if q.Object != nil {
		var err error
		if q.Body, err = json.Marshal(q.Object); err != nil {
			return nil, err
		}
	}
	if q.Subresource != "" {
		at = path.Join(at, q.Subresource) + (&url.URL{Path: q.Subpath}).EscapedPath()
	}
	body, rejects := s.releaseBody(q)
	a, err := s.send(ctx, HTTPRequest{q.Method, at, q.Query, q.ContentType, body}, &q.User, &q.Rehearsal)
	if err == nil && rejects != nil {
		a = rejects(a)
	}
	return a, err
}

// Judge answers a question by admission and validation alone, in a fraction of the time of Ask, for creates, and for
// updates and deletions whose stored objects are in Rehearsal.Stored. It does not look for existing objects unless
// fields are validated strictly, and the object of the response is in Answer.Tried. For all other questions it calls
// Ask.
func (s *Stage) Judge(ctx context.Context, q *Question) (*Answer, error) {
	t := &resources.Trial{Resource: q.Kind.Resource, Subresource: q.Subresource, Namespace: q.Namespace, Name: q.Name, Body: q.Body, Invalid: q.Invalid,
		Strict: q.Query.Get("fieldValidation") == metav1.FieldValidationStrict}
	if q.Object != nil {
		t.Made = q.Object.DeepCopyObject()
	}
	success := http.StatusOK
	switch {
	case q.Method == http.MethodPost:
		t.Operation, t.Name, success = apiadmission.Create, "", http.StatusCreated
	case q.Method == http.MethodPut && len(q.Stored) > 0:
		t.Operation = apiadmission.Update
	case q.Method == http.MethodDelete && len(q.Stored) > 0:
		t.Operation = apiadmission.Delete
	default:
		return s.Ask(ctx, q)
	}
	made, ok := s.server.Try(ctx, t, &q.User, &q.Rehearsal)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case !ok:
		return s.Ask(ctx, q)
	}
	a := &Answer{Code: success, Status: made.Status, Warnings: made.Warnings, Tried: made.Tried, Trace: q.Trace()}
	if a.Status != nil {
		a.Code = int(a.Status.Code)
	}
	return a, nil
}

// Get returns an object; nil if it does not exist.
func (s *Stage) Get(ctx context.Context, kind *offline.Kind, namespace, name string) (*unstructured.Unstructured, error) {
	q := HTTPRequest{Method: http.MethodGet, Path: Path(kind, namespace, name)}
	a, err := s.Admin().Do(ctx, q)
	if err != nil || a.Code == http.StatusNotFound {
		return nil, err
	}
	if err := a.Err(q); err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{}
	return u, u.UnmarshalJSON(a.Body)
}

// AsStored returns an object as a create would store it, without validation and admission.
func (s *Stage) AsStored(ctx context.Context, kind *offline.Kind, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	data, err := s.server.AsStored(ctx, kind.Resource, u.GetNamespace(), Encode(u.Object))
	if err != nil {
		return nil, err
	}
	made := &unstructured.Unstructured{}
	return made, made.UnmarshalJSON(data)
}

// namespaces returns the kind of namespaces.
func (s *Stage) namespaces() *offline.Kind {
	return s.kinds.At(corev1.SchemeGroupVersion.WithResource("namespaces"))
}

// Label sets labels of a namespace, in addition to the labels that every namespace has, and waits until they are
// effective for requests. It creates the namespace if it does not exist.
func (s *Stage) Label(ctx context.Context, name string, labels map[string]string) error {
	kind := s.namespaces()
	for {
		u, err := s.Get(ctx, kind, "", name)
		if err != nil {
			return err
		}
		made := u == nil
		q := HTTPRequest{Method: http.MethodPut, Path: Path(kind, "", name), ContentType: JSON}
		if made {
			u = &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}}
			q.Method, q.Path = http.MethodPost, Collection(kind, "")
		}
		u.SetLabels(labels)
		q.Body = Encode(u.Object)
		a, err := s.Admin().Do(ctx, q)
		if err != nil {
			return err
		}
		if a.Code == http.StatusConflict {
			continue
		}
		if err := a.Err(q); err != nil {
			return err
		}
		if made {
			if err := s.FurnishNamespace(ctx, name); err != nil {
				return err
			}
		}
		return s.CaughtUp(ctx)
	}
}

// Labels returns the labels of a namespace; nil if it does not exist.
func (s *Stage) Labels(ctx context.Context, name string) (map[string]string, error) {
	u, err := s.Get(ctx, s.namespaces(), "", name)
	if err != nil || u == nil {
		return nil, err
	}
	if labels := u.GetLabels(); labels != nil {
		return labels, nil
	}
	return map[string]string{}, nil
}

// planning makes plans.
type planning struct {
	// unlabelled are the namespaces whose labels are unknown.
	unlabelled map[string]bool
	// connected makes plans. The first call of Plan sets it.
	connect     sync.Once
	connected   *offline.World
	unconnected error
}

// UnknownLabels is part of the reason of a step of a plan that depends on unknown labels.
const UnknownLabels = "the labels are unknown"

// Unlabelled sets the namespaces whose labels are unknown. Steps that depend on them are unknown in plans. It must be
// called before Plan.
func (s *Stage) Unlabelled(names map[string]bool) { s.unlabelled = names }

// Planner returns a World that plans requests with the current objects of the Stage.
func (s *Stage) Planner(ctx context.Context) (*offline.World, error) {
	w, err := offline.Connect(ctx, s.Config(), s.kinds)
	if err == nil {
		w.Registrations.Kubernetes = !s.Gatehouse
	}
	return w, err
}

// Plan returns the plan of admission for a request, including the entries that do not apply. The objects of the Stage
// must not change after the first call.
func (s *Stage) Plan(ctx context.Context, q *offline.Request) (*plan.Plan, error) {
	s.connect.Do(func() {
		if s.connected, s.unconnected = s.Planner(context.WithoutCancel(ctx)); s.unconnected != nil {
			return
		}
		read := s.connected.Namespace
		s.connected.Namespace = func(ctx context.Context, name string) (*corev1.Namespace, error) {
			if s.unlabelled[name] {
				return nil, fmt.Errorf("%w: %s of the namespace %s", plan.ErrUnknown, UnknownLabels, name)
			}
			return read(ctx, name)
		}
	})
	if s.unconnected != nil {
		return nil, s.unconnected
	}
	q.All = true
	return s.connected.Plan(ctx, q)
}
