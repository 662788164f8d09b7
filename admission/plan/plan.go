package plan

import (
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

// Request is one API request as admission sees it.
type Request struct {
	Operation   admission.Operation
	Resource    schema.GroupVersionResource
	Subresource string
	Kind        schema.GroupVersionKind
	// Namespace is empty for cluster-scoped resources, except that requests about
	// a Namespace have its own name here (S2.9).
	Namespace string
	Name      string
	Options   runtime.Object
	User      user.Info
	DryRun    bool
}

// NewRequest returns what attributes say about a request.
func NewRequest(a admission.Attributes) Request {
	return Request{
		Operation:   a.GetOperation(),
		Resource:    a.GetResource(),
		Subresource: a.GetSubresource(),
		Kind:        a.GetKind(),
		Namespace:   a.GetNamespace(),
		Name:        a.GetName(),
		Options:     a.GetOperationOptions(),
		User:        a.GetUserInfo(),
		DryRun:      a.IsDryRun(),
	}
}

// Step is one hook whose rules match a request, in the order it is to be
// considered. Whether it is called is decided at its turn, since selectors and
// conditions look at the object as the steps before it left it (S2.20).
type Step struct {
	Hook *snapshot.Hook
	// Rule is the index of the rule that matched.
	Rule int
	// Resource, Subresource and Kind are what the hook is told the request is
	// about; they differ from the request's own when Equivalent (S2.24).
	Resource    schema.GroupVersionResource
	Subresource string
	Kind        schema.GroupVersionKind
	Equivalent  bool
	// Err is why the invocation kind is not known (S2.26); it rejects the
	// request once the selectors have matched. Decide returns it then.
	Err error
}

// Equivalents knows which resources are the same objects under another group or
// version (S2.23). A server's runtime.EquivalentResourceMapper is one.
type Equivalents interface {
	// EquivalentResourcesFor returns the equivalents of a resource, in the order
	// in which they are tried; the resource itself may be among them.
	EquivalentResourcesFor(resource schema.GroupVersionResource, subresource string) []schema.GroupVersionResource
	// KindFor returns the kind of the objects of a resource, empty when not known.
	KindFor(resource schema.GroupVersionResource, subresource string) schema.GroupVersionKind
}

// For returns the steps of a request for the hooks of a source, in order. Exempt
// requests have none. Nil equivalents mean that no resource has any.
//
// When there are no steps, nothing is allocated, and the cost does not depend on
// how many hooks there are.
func For(s *snapshot.Snapshot, source registration.Source, r *Request, e Equivalents) []Step {
	if Exempt(r.Kind, r.Resource.GroupResource()) {
		return nil
	}
	// The array is on the stack, and enough for what matches a request in practice.
	var array [64]int32
	target := targetOf(r)
	found := s.Candidates(array[:0], source, &target)
	others := equivalentsOf(s, source, r, e)
	for _, other := range others {
		if other != r.Resource {
			t := target
			t.Resource = other
			t.Namespaced = namespaced(r, other)
			found = s.EquivalentCandidates(found, source, &t)
		}
	}
	if len(found) == 0 {
		return nil
	}
	if len(others) > 0 {
		slices.Sort(found)
		found = slices.Compact(found)
	}
	var steps []Step
	hooks := s.Hooks(source)
	for i, position := range found {
		step, ok := match(hooks[position], r, &target, others, e)
		if !ok {
			continue
		}
		if steps == nil {
			steps = make([]Step, 0, len(found)-i)
		}
		steps = append(steps, step)
	}
	return steps
}

// equivalentsOf returns the equivalents of the request's resource, none if no hook
// of the source cares.
func equivalentsOf(s *snapshot.Snapshot, source registration.Source, r *Request, e Equivalents) []schema.GroupVersionResource {
	if e == nil || !s.HasEquivalent(source) {
		return nil
	}
	return e.EquivalentResourcesFor(r.Resource, r.Subresource)
}

// match compares a hook's rules with a request: with its own resource first, then
// with the equivalents, the first rule first (S2.22).
func match(h *snapshot.Hook, r *Request, target *snapshot.Target, others []schema.GroupVersionResource, e Equivalents) (Step, bool) {
	for i := range h.Rules {
		if mismatch(&h.Rules[i], target) == matches {
			return Step{Hook: h, Rule: i, Resource: r.Resource, Subresource: r.Subresource, Kind: r.Kind}, true
		}
	}
	if !h.Equivalent {
		return Step{}, false
	}
	return matchEquivalent(h, r, target, others, e)
}

func matchEquivalent(h *snapshot.Hook, r *Request, target *snapshot.Target, others []schema.GroupVersionResource, e Equivalents) (Step, bool) {
	for i := range h.Rules {
		for _, other := range others {
			if other == r.Resource {
				continue
			}
			t := *target
			t.Resource = other
			t.Namespaced = namespaced(r, other)
			if mismatch(&h.Rules[i], &t) != matches {
				continue
			}
			step := Step{
				Hook: h, Rule: i, Resource: other, Subresource: r.Subresource,
				Kind: e.KindFor(other, r.Subresource), Equivalent: true,
			}
			if step.Kind.Empty() {
				step.Err = apierrors.NewInternalError(&unknownKindError{other})
			}
			return step, true
		}
	}
	return Step{}, false
}

// unknownKindError tells that a resource's kind is not known (S2.26).
type unknownKindError struct{ resource schema.GroupVersionResource }

func (e *unknownKindError) Error() string {
	return "unable to convert to " + e.resource.String() + ": unknown kind"
}

// Initializers returns the initializers that a new object of a resource gets, in
// order (S11.5 to S11.7). Of several with the same name, the first one applies.
// The four registration kinds get none (S2.39). Nothing is allocated when there
// are none.
func Initializers(s *snapshot.Snapshot, kind schema.GroupVersionKind, resource schema.GroupVersionResource) []*registration.Initializer {
	// A Binding is not stored: it changes a pod that was created before.
	if Exempt(kind, resource.GroupResource()) || resource.GroupResource() == (schema.GroupResource{Resource: "bindings"}) {
		return nil
	}
	var array [16]int32
	found := s.InitializerCandidates(array[:0], &snapshot.Target{Operation: admission.Create, Resource: resource})
	if len(found) == 0 {
		return nil
	}
	all := s.Initializers()
	out := make([]*registration.Initializer, 0, len(found))
	for _, i := range found {
		in := all[i]
		known := slices.ContainsFunc(out, func(o *registration.Initializer) bool { return o.Name == in.Name })
		if !known && initializes(in, resource) {
			out = append(out, in)
		}
	}
	return out
}

// Exempt tells whether requests about a kind or resource are none of admission's
// business: registrations, so that a broken one can always be mended (S2.38,
// S2.39), and reviews that are answered rather than stored (S2.41). To be of use it
// is asked before there needs to be a snapshot (S2.40).
func Exempt(kind schema.GroupVersionKind, resource schema.GroupResource) bool {
	if kind.Group == registration.GroupName {
		switch kind.Kind {
		case registration.MutatingKind, registration.ValidatingKind, registration.ExternalKind, registration.InitializerKind,
			"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
			"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding":
			return true
		}
	}
	return registration.IsVirtual(resource)
}
