package plan

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
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
	// ClusterScoped reports whether the object has no namespace although Namespace is set: for a
	// custom resource named namespaces, k8s.io/apiserver treats the object's name as its namespace
	// (S2.10).
	ClusterScoped bool
	// Reviews reports whether webhooks are called for the reviews of Kubernetes among the virtual
	// resources of S2.41, as in Kubernetes before 1.37 (S26.4).
	Reviews bool
}

// NewRequest returns the request that attributes describe.
func NewRequest(a admission.Attributes) Request {
	r := Request{
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
	if r.Resource.Resource == "namespaces" && r.Resource.Group != "" && r.Namespace == r.Name {
		r.ClusterScoped = !inNamespace(a.GetObject()) && !inNamespace(a.GetOldObject())
	}
	return r
}

func inNamespace(object runtime.Object) bool {
	m, err := meta.Accessor(object)
	return err == nil && m.GetNamespace() != ""
}

// Reach is the set of a source's entries that may apply to requests.
type Reach uint8

const (
	// Everything: entries of manifest files and of the API.
	Everything Reach = iota
	// Manifests: only entries of manifest files, which users cannot repair through the API
	// (S21.16).
	Manifests
	// Nothing: no entries.
	Nothing
)

// ReachOf returns which entries of a source may apply to requests for a kind or resource; reviews
// is Request.Reviews. Plugins call it before they need a snapshot (S2.40, S14.17, S21.17).
func ReachOf(source registration.Source, kind schema.GroupVersionKind, resource schema.GroupResource, reviews bool) Reach {
	d := source.Descriptor()
	if reviews && resource.Group != registration.OwnGroup && registration.IsVirtual(resource) && slices.Contains(hooks, source) {
		return Everything
	}
	exempt := false
	if d.Policies || d.Binds {
		// Policies apply to webhook configurations, and never to policies and bindings (S14.15,
		// S14.16).
		exempt = registration.IsPolicy(resource)
	} else {
		exempt = Exempt(kind, resource)
	}
	switch {
	case registration.IsVirtual(resource) || exempt && !d.Manifests:
		return Nothing
	case exempt:
		return Manifests
	}
	return Everything
}

// hooks are the sources of webhooks.
var hooks = []registration.Source{registration.Mutating, registration.Validating, registration.External}

// Exempt reports whether no webhook and no initializer of the API applies to requests for a kind or
// resource. Exempt are webhook and initializer configurations, so that a broken one can always be
// repaired (S2.38, S2.39), and virtual resources, which the server answers and does not store
// (S2.41).
func Exempt(kind schema.GroupVersionKind, resource schema.GroupResource) bool {
	if kind.Group == registration.GroupName && slices.ContainsFunc(registration.Sources(), func(d registration.Descriptor) bool { return d.Kind == kind.Kind }) {
		return true
	}
	return registration.IsVirtual(resource)
}
