package offline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/catalog"
)

// Access says whose rights are looked at before a request is planned.
type Access int

const (
	// NoAccess: nobody's. The user may make the request.
	NoAccess Access = iota
	// OwnAccess: those of the caller of the cluster, who makes the request.
	OwnAccess
	// UserAccess: those of Request.User.
	UserAccess
)

// refuses returns the link of a part of the server that refuses a request, in a pass.
func refuses(name string, pass registration.Pass, err error) plan.Link {
	return plan.Link{
		Plugin: name, Mutates: pass == registration.MutatingPass, Validates: pass == registration.ValidatingPass, Certain: true,
		Judge: func(context.Context, registration.Pass) ([]byte, error) { return nil, err },
	}
}

// unknown returns the link of a part of the server whose answer is not known.
func unknown(name string, pass registration.Pass, why string) plan.Link {
	return plan.Link{Plugin: name, Mutates: pass == registration.MutatingPass, Validates: pass == registration.ValidatingPass, Hidden: why}
}

// before returns what refuses a request before admission. strict is why a strict decoder refuses the object, nil
// when it does not.
func (w *World) before(ctx context.Context, q *Request, strict error) (links []plan.Link) {
	if !w.preparing {
		return nil
	}
	pass := registration.MutatingPass
	if w.cluster != nil && q.Kind.Guessed && w.Kinds.incomplete == "" {
		return []plan.Link{refuses(plan.DiscoveryName, pass, fmt.Errorf("the cluster serves no kind %s of %s", q.Kind.Kind.Kind, q.Kind.Kind.GroupVersion()))}
	}
	if w.cluster != nil && q.Access != NoAccess {
		allowed, why, err := w.cluster.allowed(ctx, q)
		switch {
		case err != nil:
			links = append(links, unknown(plan.AuthorizationName, pass, "the cluster does not say what the user may do: "+err.Error()))
		case !allowed:
			refused := refuses(plan.AuthorizationName, pass, forbidden(q, why))
			refused.GoesOn = true
			links = append(links, refused)
		}
	}
	if strict != nil {
		links = append(links, refuses(plan.DecodingName, pass, strict))
	}
	return links
}

// after returns what refuses a request after admission: the object that is there.
func (w *World) after(ctx context.Context, q *Request) (links []plan.Link) {
	if d := w.Kinds.definition(q.Kind.Kind.GroupKind()); w.preparing && d != nil && d.unread != "" && q.Object != nil {
		links = append(links, unknown(plan.ValidationName, registration.ValidatingPass, "the object is not validated: "+d.unread))
	}
	if !w.preparing || w.cluster == nil || q.Operation != "CREATE" || q.Subresource != "" || q.Name == "" || q.Kind.Guessed || registration.IsVirtual(q.Kind.Resource.GroupResource()) {
		return links
	}
	_, err := w.Stored(ctx, q.Kind, q.Namespace, q.Name)
	switch {
	case err == nil:
		return append(links, refuses(plan.StorageName, registration.ValidatingPass, fmt.Errorf("%w: its change is explained with --operation UPDATE", apierrors.NewAlreadyExists(q.Kind.Resource.GroupResource(), q.Name))))
	case apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
		return links
	case apierrors.IsForbidden(err):
		return append(links, unknown(plan.StorageName, registration.ValidatingPass, "may not get "+q.Kind.Resource.Resource+", so an object of this name may exist"))
	}
	return append(links, unknown(plan.StorageName, registration.ValidatingPass, "whether the object exists: "+err.Error()))
}

// missing returns a note that names what the caller may not see of a cluster.
func (w *World) missing(links []plan.Link) []string {
	var list []string
	for i := range links {
		if why := links[i].Hidden; why != "" && !slices.Contains(list, why) {
			list = append(list, why)
		}
	}
	if w.cluster == nil || len(list) == 0 {
		return nil
	}
	return []string{strings.Join(list, "; ") + ": 'gatehouse explain --rbac' prints a role with the rights to see all of it"}
}

// forbidden is what a server answers to a user without the right.
func forbidden(q *Request, why string) error {
	user, object := "", q.Name
	if q.User != nil {
		user = q.User.GetName()
	}
	if q.Operation == "CREATE" && q.Subresource == "" {
		// A create names no object.
		object = ""
	}
	resource := q.Kind.Resource.Resource
	if q.Subresource != "" {
		resource += "/" + q.Subresource
	}
	where := " at the cluster scope"
	if q.Namespace != "" && q.Kind.Namespaced {
		where = fmt.Sprintf(" in the namespace %q", q.Namespace)
	}
	text := fmt.Sprintf("User %q cannot %s resource %q in API group %q%s", user, verbs[q.Operation][0], resource, q.Kind.Resource.Group, where)
	if why != "" {
		text += ": " + why
	}
	return apierrors.NewForbidden(schema.GroupResource{Group: q.Kind.Resource.Group, Resource: resource}, object, errors.New(text))
}

// verbs are those of an operation; one of them is enough.
var verbs = map[string][]string{"CREATE": {"create"}, "UPDATE": {"update", "patch"}, "DELETE": {"delete"}, "CONNECT": {"create", "get"}}

// allowed asks the cluster whether the user may make a request. why is the reason of the cluster.
func (c *cluster) allowed(ctx context.Context, q *Request) (allowed bool, why string, err error) {
	asked := &authorizationv1.ResourceAttributes{Namespace: q.Namespace, Group: q.Kind.Resource.Group, Version: q.Kind.Resource.Version, Resource: q.Kind.Resource.Resource, Subresource: q.Subresource, Name: q.Name}
	if q.Operation == "CREATE" && q.Subresource == "" {
		// A create names no object.
		asked.Name = ""
	}
	api := c.client.AuthorizationV1()
	for _, verb := range verbs[q.Operation] {
		asked.Verb = verb
		var status authorizationv1.SubjectAccessReviewStatus
		if q.Access == OwnAccess {
			review, err := api.SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: asked}}, metav1.CreateOptions{})
			if err != nil {
				return false, "", err
			}
			status = review.Status
		} else {
			spec := authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: asked, User: q.User.GetName(), UID: q.User.GetUID(), Groups: q.User.GetGroups()}
			for key, values := range q.User.GetExtra() {
				if spec.Extra == nil {
					spec.Extra = map[string]authorizationv1.ExtraValue{}
				}
				spec.Extra[key] = values
			}
			review, err := api.SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
			if err != nil {
				return false, "", err
			}
			status = review.Status
		}
		if status.Allowed {
			return true, "", nil
		}
		why = status.Reason
	}
	return false, why, nil
}

// strict takes the fields out of the object of a request that the server does not have, and returns the error of a
// server that is asked to be strict, as kubectl asks; nil if it has all fields.
func (w *World) strict(q *Request, object *unstructured.Unstructured) error {
	if !w.preparing || object == nil || q.Operation == "CONNECT" {
		return nil
	}
	gvk := object.GroupVersionKind()
	if typed, err := scheme.Scheme.New(gvk); err == nil {
		if later := w.Fields.Remove(object.Object, reflect.TypeOf(typed)); len(later) > 0 {
			return StrictError(gvk, "", later)
		}
	}
	if rules := w.rules(q); rules != nil {
		unknown, err := rules.Decode(object.DeepCopy())
		if err != nil || len(unknown) == 0 {
			return err
		}
		return StrictError(gvk, "", unknown)
	}
	if !catalog.Scheme.Recognizes(gvk) {
		return nil
	}
	data, err := json.Marshal(object.Object)
	if err != nil {
		return err
	}
	info, _ := runtime.SerializerInfoForMediaType(catalog.Codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	_, _, err = catalog.Codecs.DecoderToVersion(info.StrictSerializer, runtime.InternalGroupVersioner).Decode(data, nil, nil)
	if problems, ok := runtime.AsStrictDecodingError(err); ok {
		var said []string
		for _, e := range problems.Errors() {
			said = append(said, e.Error())
		}
		return StrictError(gvk, strings.Join(said, ", "), nil)
	}
	return nil
}

// StrictDecoding begins what a server says of fields that are unknown or twice there.
const StrictDecoding = "strict decoding error"

// StrictError is what a server answers to an object with unknown fields when it is asked to be strict. said is
// what it says of other fields; empty for nothing.
func StrictError(gvk schema.GroupVersionKind, said string, unknown []string) *apierrors.StatusError {
	var all []string
	if said != "" {
		all = append(all, said)
	}
	for _, path := range unknown {
		all = append(all, fmt.Sprintf("unknown field %q", path))
	}
	return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %s: %s", gvk.Kind, gvk.Version, gvk.Kind, StrictDecoding, strings.Join(all, ", ")))
}
