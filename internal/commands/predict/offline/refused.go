package offline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/engine/question"
	"github.com/gatehouse-dev/gatehouse/internal/kit/upstream"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/catalog"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/customresources"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/explain"
)

// Access selects the user whose rights are checked before a request is planned.
type Access int

const (
	// NoAccess assumes that the user may make the request.
	NoAccess Access = iota
	// OwnAccess checks the rights of the caller of the cluster, who makes the request.
	OwnAccess
	// UserAccess checks the rights of Request.User.
	UserAccess
)

// before returns the checks that reject a request before admission. strict is the error of a strict decoder for the
// object, nil if there is none; old is the stored object.
func (w *World) before(ctx context.Context, q *Request, old *unstructured.Unstructured, strict error) (links []plan.Link) {
	if !w.prepares(q) {
		return nil
	}
	if w.cluster != nil && q.Kind.Guessed && w.Kinds.incomplete == "" {
		return []plan.Link{question.Refuses(plan.DiscoveryName, registration.MutatingPass, fmt.Errorf("the cluster serves no kind %s of %s", q.Kind.Kind.Kind, q.Kind.Kind.GroupVersion()))}
	}
	if w.cluster != nil && q.Access != NoAccess {
		r := q.Kind.Resource
		asked := authorizer.AttributesRecord{APIGroup: r.Group, APIVersion: r.Version, Resource: r.Resource, Subresource: q.Subresource, Name: q.Name}
		switch {
		case q.Kind.Namespaced:
			asked.Namespace = q.Namespace
		case r.GroupResource() == ofNamespaces && q.Operation != "CREATE":
			// A role binding in a namespace also grants access to the Namespace object.
			asked.Namespace = q.Name
		}
		if asked.User = q.User; q.User == nil {
			asked.User = &user.DefaultInfo{}
		}
		links = append(links, question.Authorization(ctx, w.cluster.rights(q.Access), q.Operation, asked)...)
	}
	if strict != nil {
		links = append(links, question.Refuses(plan.DecodingName, registration.MutatingPass, strict))
	}
	if q.Object != nil && old != nil && q.Object.GetResourceVersion() != "" && old.GetResourceVersion() != "" && q.Object.GetResourceVersion() != old.GetResourceVersion() {
		links = append(links, question.Refuses(plan.StorageName, registration.MutatingPass, apierrors.NewConflict(q.Kind.Resource.GroupResource(), q.Name, errors.New(registry.OptimisticLockErrorMsg))))
	}
	return links
}

var ofNamespaces = schema.GroupResource{Resource: "namespaces"}

// Refusal returns the cluster's response to a request that cannot be planned, because the stored object cannot be read,
// or the object of the request does not fit its kind. It returns nil if err has another cause.
func (w *World) Refusal(ctx context.Context, q *Request, err error) *metav1.Status {
	if w.cluster == nil {
		return nil
	}
	for _, link := range w.before(ctx, q, nil, nil) {
		if link.Judge != nil {
			_, err = link.Judge(ctx, registration.MutatingPass)
			return responsewriters.ErrorToAPIStatus(err)
		}
	}
	if apierrors.IsNotFound(err) || apierrors.IsBadRequest(err) {
		return responsewriters.ErrorToAPIStatus(err)
	}
	return nil
}

// after returns the checks that reject a request after admission: for existing objects, and for faults of a CRD. old is
// the stored object.
func (w *World) after(ctx context.Context, q *Request, old *unstructured.Unstructured) (links []plan.Link) {
	if defines := q.Kind.Kind.GroupKind() == definitions; w.prepares(q) && defines && q.Object != nil && q.Subresource == "" {
		if err := customresources.Accepts(ctx, q.Object, old); err != nil {
			links = append(links, question.Refuses(plan.ValidationName, registration.ValidatingPass, err))
		}
	} else if d := w.Kinds.definition(q.Kind.Kind.GroupKind()); w.prepares(q) && d != nil && d.unread != "" && q.Object != nil {
		links = append(links, question.Unknown(plan.ValidationName, registration.ValidatingPass, "the object is not validated: "+d.unread))
	}
	if w.prepares(q) && w.cluster != nil && q.Operation == "CREATE" && catalog.Binds(q.Kind.Resource.GroupResource(), q.Subresource) {
		pod, err := w.Stored(ctx, w.Kinds.Of(corev1.SchemeGroupVersion.WithKind("Pod")), q.Namespace, q.Name)
		if err == nil {
			err = unbound(pod)
		}
		return append(links, explain.Unbound(err)...)
	}
	if w.prepares(q) && w.cluster != nil && q.Operation == "CREATE" {
		links = append(links, w.parent(ctx, q)...)
	}
	if !w.prepares(q) || w.cluster == nil || q.Operation != "CREATE" || q.Subresource != "" || q.Name == "" || q.Kind.Guessed || registration.IsVirtual(q.Kind.Resource.GroupResource()) {
		return links
	}
	_, err := w.Stored(ctx, q.Kind, q.Namespace, q.Name)
	return append(links, explain.Existing(q.Kind.Resource.GroupResource(), q.Name, err)...)
}

// parent returns the check that rejects an eviction of a missing pod, or a token of a missing service account.
func (w *World) parent(ctx context.Context, q *Request) []plan.Link {
	pass := registration.ValidatingPass
	switch resource := q.Kind.Resource.GroupResource(); {
	case resource == corev1.Resource("pods") && q.Subresource == "eviction":
	case resource == corev1.Resource("serviceaccounts") && q.Subresource == "token":
		// The registry reads the account before it validates the request.
		pass = registration.MutatingPass
	default:
		return nil
	}
	_, err := w.Stored(ctx, q.Kind, q.Namespace, q.Name)
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err):
		return []plan.Link{question.Refuses(plan.StorageName, pass, err)}
	case apierrors.IsForbidden(err):
		return []plan.Link{question.Unknown(plan.StorageName, pass, fmt.Sprintf("may not get %s, so %s may not be there", q.Kind.Resource.Resource, q.Name))}
	}
	return []plan.Link{question.Unknown(plan.StorageName, pass, "whether the object exists: "+err.Error())}
}

// unbound returns the registry's error if a pod cannot be bound to a node; nil if it can.
func unbound(pod *unstructured.Unstructured) error {
	why := ""
	node, _, _ := unstructured.NestedString(pod.Object, "spec", "nodeName")
	gates, _, _ := unstructured.NestedSlice(pod.Object, "spec", "schedulingGates")
	switch {
	case pod.GetDeletionTimestamp() != nil:
		why = fmt.Sprintf("pod %s is being deleted, cannot be assigned to a host", pod.GetName())
	case node != "":
		why = fmt.Sprintf("pod %s is already assigned to node %q", pod.GetName(), node)
	case len(gates) > 0:
		why = fmt.Sprintf("pod %s has non-empty .spec.schedulingGates", pod.GetName())
	default:
		return nil
	}
	return apierrors.NewConflict(schema.GroupResource{Resource: "pods/binding"}, pod.GetName(), errors.New(why))
}

// Missing returns a note that lists the resources of a cluster that the caller may not see; none if the plan misses
// nothing.
func Missing(p *plan.Plan) []string {
	const right = "may not list "
	var lists, list []string
	for _, why := range p.Unseen() {
		if resource, ok := strings.CutPrefix(why, right); ok {
			lists = append(lists, resource)
		} else if strings.HasPrefix(why, "may not ") {
			list = append(list, why)
		}
	}
	if len(lists) > 0 {
		list = append(list, right+strings.Join(lists, ", "))
	}
	if len(list) == 0 {
		return nil
	}
	return []string{strings.Join(list, "; ") + ": 'gatehouse explain --rbac' prints a role with the rights to see all of it"}
}

// subjectAccessReviews is the resource that answers questions about rights.
var subjectAccessReviews = authorizationv1.Resource("subjectaccessreviews")

// rights returns an authorizer that asks the cluster about the rights of a request's user.
func (c *cluster) rights(access Access) upstream.Authorizer {
	return authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		asked := &authorizationv1.ResourceAttributes{
			Verb: a.GetVerb(), Namespace: a.GetNamespace(), Group: a.GetAPIGroup(), Version: a.GetAPIVersion(), Resource: a.GetResource(), Subresource: a.GetSubresource(), Name: a.GetName(),
		}
		var status authorizationv1.SubjectAccessReviewStatus
		if access == OwnAccess {
			review, err := c.client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: asked}}, metav1.CreateOptions{})
			if err != nil {
				return authorizer.DecisionNoOpinion, "", err
			}
			status = review.Status
		} else {
			who := a.GetUser()
			spec := authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: asked, User: who.GetName(), UID: who.GetUID(), Groups: who.GetGroups(), Extra: map[string]authorizationv1.ExtraValue{}}
			for key, values := range who.GetExtra() {
				spec.Extra[key] = values
			}
			review, err := c.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
			if err != nil {
				return authorizer.DecisionNoOpinion, "", err
			}
			status = review.Status
		}
		if status.Allowed {
			return authorizer.DecisionAllow, status.Reason, nil
		}
		return authorizer.DecisionNoOpinion, status.Reason, nil
	})
}

// strict removes from the object of a request the fields that the server does not have, and returns the error of strict
// field validation, which kubectl requests; nil if the server has all fields.
func (w *World) strict(q *Request, object *unstructured.Unstructured) error {
	if !w.prepares(q) || object == nil || q.Operation == "CONNECT" {
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
		return StrictError(gvk, strings.TrimPrefix(problems.Error(), StrictDecoding+": "), nil)
	}
	return nil
}

// StrictDecoding begins a server's message about unknown and duplicate fields.
const StrictDecoding = "strict decoding error"

// StrictError is a server's response to an object with unknown fields under strict field validation. said is the
// message about other fields; empty for none.
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
