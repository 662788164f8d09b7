package offline

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/clustersnapshot"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/catalog"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/customresources"
)

// preparation returns the server's preparation of a request's object between the passes of admission; nil if it is not
// known.
func (w *World) preparation(q *Request, a apiadmission.Attributes) (catalog.Prepare, error) {
	object, old := a.GetObject(), a.GetOldObject()
	if !w.prepares(q) || object == nil || old != nil && reflect.TypeOf(object) != reflect.TypeOf(old) {
		return nil, nil
	}
	registry, err := w.Registry(a)
	if rules := w.rules(q); rules != nil {
		var s catalog.Strategies
		s, err = rules.Strategies(q.Kind.Kind.Version, q.Subresource)
		registry = s.Registry(a)
	}
	if err != nil || registry == nil {
		return nil, err
	}
	prepare := catalog.Prepares(registry, a)
	if prepare == nil {
		return nil, nil
	}
	return func(ctx context.Context, object runtime.Object) error {
		if m, err := meta.Accessor(object); err == nil {
			if len(validation.ValidateManagedFields(m.GetManagedFields(), nil)) > 0 {
				// A handler replaces managed fields that it cannot read.
				m.SetManagedFields(nil)
			}
			if a.GetOperation() == apiadmission.Update {
				// The request always changes the current stored object.
				m.SetResourceVersion("")
			}
		}
		r := &registryReader{world: w, q: q, sent: object, old: old}
		err := prepare(r.context(ctx), object)
		if err != nil && r.unread != nil {
			return fmt.Errorf("%w: %w", plan.ErrUnknown, r.unread)
		}
		return err
	}, nil
}

// registryReader provides the objects and decisions that a registry reads while it prepares the object of a request.
type registryReader struct {
	world     *World
	q         *Request
	sent, old runtime.Object
	// unread is the reason why a read of the registry failed; nil for none.
	unread error
}

// context returns the context of the request, as registries expect it.
func (r *registryReader) context(ctx context.Context) context.Context {
	q, in, who := r.q, metav1.NamespaceNone, r.q.User
	if q.Kind.Namespaced {
		in = q.Namespace
	}
	if who == nil {
		who = &user.DefaultInfo{}
	}
	return catalog.WithReader(request.WithRequestInfo(request.WithUser(request.WithNamespace(ctx, in), who), &request.RequestInfo{
		IsResourceRequest: true, Verb: strings.ToLower(q.Operation), APIGroup: q.Kind.Resource.Group, APIVersion: q.Kind.Resource.Version,
		Resource: q.Kind.Resource.Resource, Subresource: q.Subresource, Namespace: in, Name: q.Name,
	}), r)
}

// Authorize implements catalog.Reader.
func (r *registryReader) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	// Without discovery, a registry of policies cannot name the resource of their params.
	if r.world.cluster == nil || r.q.Access == NoAccess || a.GetResource() == "*" {
		return authorizer.DecisionAllow, "", nil
	}
	decision, why, err := r.world.cluster.rights(r.q.Access).Authorize(ctx, a)
	r.note("create", subjectAccessReviews, err)
	return decision, why, err
}

// Get implements catalog.Reader.
func (r *registryReader) Get(ctx context.Context, resource schema.GroupResource, namespace, name string) (runtime.Object, error) {
	// Two groups may have the same objects, such as events.
	own := r.old != nil && resource.Resource == r.q.Kind.Resource.Resource && name == r.q.Name && r.q.Subresource != "scale"
	object := r.old
	if own {
		object = object.DeepCopyObject()
	} else {
		kind, err := r.kind(resource)
		if err != nil {
			return nil, err
		}
		u, err := r.world.Stored(ctx, kind, namespace, name)
		if r.note("get", resource, err); err != nil {
			return nil, err
		}
		if object, err = Decode(u); err != nil {
			return nil, err
		}
	}
	// Objects of files lack the fields that a server sets, and may name no namespace.
	stored, err := meta.Accessor(object)
	if err != nil {
		return nil, err
	}
	stored.SetResourceVersion(cmp.Or(stored.GetResourceVersion(), "1"))
	sent, err := meta.Accessor(r.sent)
	if err != nil || !own {
		return object, err
	}
	stored.SetNamespace(cmp.Or(stored.GetNamespace(), sent.GetNamespace()))
	stored.SetUID(cmp.Or(stored.GetUID(), sent.GetUID()))
	if stored.GetCreationTimestamp().Time.IsZero() {
		stored.SetCreationTimestamp(sent.GetCreationTimestamp())
	}
	return object, nil
}

// List implements catalog.Reader.
func (r *registryReader) List(ctx context.Context, resource schema.GroupResource, namespace string) ([]runtime.Object, error) {
	if r.world.cluster == nil {
		// Files do not contain all objects of a cluster.
		return nil, nil
	}
	kind, err := r.kind(resource)
	if err != nil {
		return nil, err
	}
	list, err := clustersnapshot.All(ctx, r.world.cluster.objects.Resource(kind.Resource).Namespace(namespace), metav1.ListOptions{})
	if r.note("list", resource, err); err != nil {
		return nil, err
	}
	objects := make([]runtime.Object, len(list))
	for i, u := range list {
		if objects[i], err = Decode(u); err != nil {
			return nil, err
		}
	}
	return objects, nil
}

// kind returns the kind of a resource.
func (r *registryReader) kind(resource schema.GroupResource) (*Kind, error) {
	served, ok := r.world.Kinds.Served(resource.Group, resource.Resource)
	if !ok {
		r.unread = fmt.Errorf("the cluster serves no %s", resource)
		return nil, r.unread
	}
	return r.world.Kinds.At(served), nil
}

// note notes a failed read.
func (r *registryReader) note(verb string, resource schema.GroupResource, err error) {
	switch {
	case err == nil || r.unread != nil || apierrors.IsNotFound(err):
	case apierrors.IsForbidden(err):
		r.unread = fmt.Errorf("may not %s %s", verb, resource.Resource)
	default:
		r.unread = err
	}
}

// rules returns the rules in the CRD of a request's kind; nil if they are not known, or if the request has objects of
// another kind.
func (w *World) rules(q *Request) *customresources.Rules {
	if d := w.Kinds.definition(q.Kind.Kind.GroupKind()); w.prepares(q) && d != nil && (q.Subresource == "" || q.Subresource == "status") {
		return d.rules
	}
	return nil
}

// prepares reports whether a plan of the request prepares and validates its objects.
func (w *World) prepares(q *Request) bool { return w.Registry != nil && !q.Answered }
