package plugins

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiadmission "k8s.io/apiserver/pkg/admission"
)

// scaleKind is the kind of requests to the subresource scale of a stored resource.
var scaleKind = schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}

// storedAttributes presents a request through another name of a resource as a request for the
// resource itself (S9.19).
type storedAttributes struct {
	apiadmission.Attributes
	resource schema.GroupVersionResource
	kind     schema.GroupVersionKind
}

// asStored returns the attributes of a request for the stored resource. A kind that the stored version does not
// have, such as DeploymentRollback, is kept.
func asStored(a apiadmission.Attributes, stored map[schema.GroupVersionResource]schema.GroupVersionResource) apiadmission.Attributes {
	resource, ok := stored[a.GetResource()]
	if !ok {
		return a
	}
	kind := a.GetKind()
	switch a.GetSubresource() {
	case "", "status":
		kind = resource.GroupVersion().WithKind(kind.Kind)
	case "scale":
		kind = scaleKind
	}
	return storedAttributes{a, resource, kind}
}

// GetResource implements admission.Attributes.
func (s storedAttributes) GetResource() schema.GroupVersionResource { return s.resource }

// GetKind implements admission.Attributes.
func (s storedAttributes) GetKind() schema.GroupVersionKind { return s.kind }
