package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/internal/engine/deepcopy"
)

// AdmissionExplanation asks what admission would do with a request, and is answered with
// the plan. It is not stored.
type AdmissionExplanation struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the request.
	Spec AdmissionExplanationSpec `json:"spec"`
	// Status is what admission would do with it.
	Status AdmissionExplanationStatus `json:"status,omitempty"`
}

// AdmissionExplanationSpec is a request that is not made.
type AdmissionExplanationSpec struct {
	// Operation is CREATE, UPDATE, DELETE or CONNECT. Empty means CREATE.
	Operation string `json:"operation,omitempty"`
	// Resource is what the request is about.
	Resource metav1.GroupVersionResource `json:"resource"`
	// Subresource, such as status; empty for the resource itself.
	Subresource string `json:"subresource,omitempty"`
	// Namespace is that of the object. When it is empty, what the object says counts.
	Namespace string `json:"namespace,omitempty"`
	// Name is that of the object. When it is empty, what the object says counts.
	Name string `json:"name,omitempty"`
	// Object is the object as it would be sent. UPDATE without one explains an update
	// that changes nothing.
	Object *runtime.RawExtension `json:"object,omitempty"`
	// DryRun explains a dry run.
	DryRun bool `json:"dryRun,omitempty"`
	// User is who would make the request. Empty means the caller; any other user needs the
	// right to impersonate.
	User string `json:"user,omitempty"`
	// Groups are those of that user.
	Groups []string `json:"groups,omitempty"`
	// AssumeRights takes the user to be allowed to make the request: a cluster gives its controllers
	// their rights.
	AssumeRights bool `json:"assumeRights,omitempty"`
	// All asks for what does not apply, too, with the reason.
	All bool `json:"all,omitempty"`
	// Registrations are policies and bindings that the plan takes to be stored, each in the
	// place of the stored one of its kind and name. They are not stored.
	Registrations []runtime.RawExtension `json:"registrations,omitempty"`
}

// AdmissionExplanationStatus is the answer.
type AdmissionExplanationStatus struct {
	// Plan is what admission would do, every step in order; absent when the request would be rejected before
	// admission.
	Plan *plan.Plan `json:"plan,omitempty"`
	// Error is what the request would be rejected with before admission.
	Error *metav1.Status `json:"error,omitempty"`
	// Tried are the registrations of the spec, in their order.
	Tried []TriedRegistration `json:"tried,omitempty"`
}

// TriedRegistration is what was found out about a registration that is not stored.
type TriedRegistration struct {
	// Kind and Name name the registration.
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Problems are why it could not be stored or is left out of the plan, and its type errors.
	Problems []string `json:"problems,omitempty"`
	// Costs are what its expressions cost, in the order of the fields.
	Costs []ExpressionCost `json:"costs,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (e *AdmissionExplanation) DeepCopyObject() runtime.Object { return deepcopy.Of(e) }
