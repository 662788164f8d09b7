package stage

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apiadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/internal/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/server"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/resources"
)

// Kinds returns the kinds that the server serves.
func (s *Stage) Kinds() *offline.Kinds { return s.kinds }

// Discover asks the server for its kinds again, after definitions were made or deleted. Nothing else
// may use the Stage meanwhile.
func (s *Stage) Discover() (err error) {
	s.kinds, err = offline.Discover(s.Config())
	return err
}

// CaughtUp returns when requests are judged by all objects that were made before.
func (s *Stage) CaughtUp(ctx context.Context) error { return s.server.CaughtUp(ctx) }

// Question is a request that a Stage judges and does not make. It is used once.
type Question struct {
	// Method is POST, PUT, PATCH, DELETE or GET, which is for CONNECT.
	Method          string
	Kind            *offline.Kind
	Namespace, Name string
	// Subresource is empty for the object itself. Subpath is what comes behind it in the path of a proxy.
	Subresource, Subpath string
	Query                url.Values
	ContentType          string
	Body                 []byte
	// User makes the request.
	User user.DefaultInfo
	// Invalid has Judge judge a create whose object the validation of its kind would reject.
	Invalid bool
	// Rehearsal says how the request is judged.
	server.Rehearsal
}

// Ask sends a question through all of the server's handlers. The answer is what a client would get.
func (s *Stage) Ask(ctx context.Context, q *Question) (*Answer, error) {
	at := Collection(q.Kind, q.Namespace)
	if q.Name != "" && q.Method != http.MethodPost || q.Subresource != "" {
		at += "/" + url.PathEscape(q.Name)
	}
	if q.Subresource != "" {
		at = path.Join(at, q.Subresource) + (&url.URL{Path: q.Subpath}).EscapedPath()
	}
	body, rejects := s.known(q)
	a, err := s.send(ctx, Request{q.Method, at, q.Query, q.ContentType, body}, &q.User, &q.Rehearsal)
	if err == nil && rejects != nil {
		a = rejects(a)
	}
	return a, err
}

// Judge answers a question by admission and validation alone, in a fraction of the time of Ask, where
// that can be: creates, updates and deletions with what they find in Rehearsal.Stored. It does not
// look for existing objects unless fields are validated strictly, and the object of the answer is in
// Answer.Tried. It asks the others.
func (s *Stage) Judge(ctx context.Context, q *Question) (*Answer, error) {
	t := &resources.Trial{Resource: q.Kind.Resource, Subresource: q.Subresource, Namespace: q.Namespace, Name: q.Name, Body: q.Body, Invalid: q.Invalid,
		Strict: q.Query.Get("fieldValidation") == metav1.FieldValidationStrict}
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

// Get returns an object; nil when it does not exist.
func (s *Stage) Get(ctx context.Context, kind *offline.Kind, namespace, name string) (*unstructured.Unstructured, error) {
	q := Request{Method: http.MethodGet, Path: Path(kind, namespace, name)}
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

// AsStored returns an object as a create would have stored it, if nobody validated or judged it.
func (s *Stage) AsStored(ctx context.Context, kind *offline.Kind, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	data, err := s.server.AsStored(ctx, kind.Resource, u.GetNamespace(), Encode(u.Object))
	if err != nil {
		return nil, err
	}
	made := &unstructured.Unstructured{}
	return made, made.UnmarshalJSON(data)
}

// namespaces is the kind of namespaces.
func (s *Stage) namespaces() *offline.Kind {
	return s.kinds.At(corev1.SchemeGroupVersion.WithResource("namespaces"))
}

// Label gives a namespace labels, in addition to those that every namespace has, and returns when
// requests are judged by them. It makes the namespace if it does not exist.
func (s *Stage) Label(ctx context.Context, name string, labels map[string]string) error {
	kind := s.namespaces()
	for {
		u, err := s.Get(ctx, kind, "", name)
		if err != nil {
			return err
		}
		made := u == nil
		q := Request{Method: http.MethodPut, Path: Path(kind, "", name), ContentType: JSON}
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

// Labels returns the labels of a namespace; nil when it does not exist.
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
	// unlabelled are the namespaces whose labels nobody knows.
	unlabelled map[string]bool
	// connected makes plans. The first call of Plan sets it.
	connect     sync.Once
	connected   *offline.World
	unconnected error
}

// UnknownLabels is in the reason of a step of a plan that depends on labels which nobody knows.
const UnknownLabels = "nobody knows the labels"

// Unlabelled says which namespaces have labels that nobody knows: what depends on these is unknown to Plan. It must
// be called before Plan.
func (s *Stage) Unlabelled(names map[string]bool) { s.unlabelled = names }

// Planner returns what plans requests by the objects that the Stage has now.
func (s *Stage) Planner(ctx context.Context) (*offline.World, error) {
	w, err := offline.Connect(ctx, s.Config(), s.kinds)
	if err == nil {
		w.Registrations.Kubernetes = !s.Gatehouse
	}
	return w, err
}

// Plan returns what admission would do with a request, including the entries that do not apply. The
// objects of the Stage must not change after the first call.
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
