package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/internal/engine/deepcopy"
)

// AdmissionExplanation asks how admission would handle a request. The answer is the plan. It is not
// stored.
type AdmissionExplanation struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the request.
	Spec AdmissionExplanationSpec `json:"spec"`
	// Status is the answer.
	Status AdmissionExplanationStatus `json:"status,omitempty"`
}

// AdmissionExplanationSpec is a hypothetical request.
type AdmissionExplanationSpec struct {
	// Operation is CREATE, UPDATE, DELETE or CONNECT. Empty means CREATE.
	Operation string `json:"operation,omitempty"`
	// Resource is the resource of the request.
	Resource metav1.GroupVersionResource `json:"resource"`
	// Subresource, such as status; empty for the resource itself.
	Subresource string `json:"subresource,omitempty"`
	// Namespace is the namespace of the object. If it is empty, the namespace in the object counts.
	Namespace string `json:"namespace,omitempty"`
	// Name is the name of the object. If it is empty, the name in the object counts.
	Name string `json:"name,omitempty"`
	// Object is the object as it would be sent. UPDATE without one explains an update
	// that changes nothing.
	Object *runtime.RawExtension `json:"object,omitempty"`
	// DryRun explains a dry run.
	DryRun bool `json:"dryRun,omitempty"`
	// User is the user that would make the request. Empty means the caller; any other user requires
	// the permission to impersonate.
	User string `json:"user,omitempty"`
	// Groups are the groups of the user.
	Groups []string `json:"groups,omitempty"`
	// AssumeRights assumes that the user is authorized to make the request, as the controllers of a
	// cluster are.
	AssumeRights bool `json:"assumeRights,omitempty"`
	// All adds the entries that do not apply, with the reasons.
	All bool `json:"all,omitempty"`
	// Registrations are policies and bindings that the plan treats as stored. Each one replaces the
	// stored registration of its kind and name. They are not stored.
	Registrations []runtime.RawExtension `json:"registrations,omitempty"`
}

// AdmissionExplanationStatus is the answer.
type AdmissionExplanationStatus struct {
	// Plan is the plan, with every step in order; absent if the request would be rejected before
	// admission.
	Plan *plan.Plan `json:"plan,omitempty"`
	// Error is the rejection of the request before admission.
	Error *metav1.Status `json:"error,omitempty"`
	// Tried are the registrations of the spec, in their order.
	Tried []TriedRegistration `json:"tried,omitempty"`
}

// TriedRegistration is the result of checking a registration that is not stored.
type TriedRegistration struct {
	// Kind and Name name the registration.
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Problems are the reasons why it could not be stored or is left out of the plan, and its type
	// errors.
	Problems []string `json:"problems,omitempty"`
	// Costs are the costs of its expressions, in the order of the fields.
	Costs []ExpressionCost `json:"costs,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (e *AdmissionExplanation) DeepCopyObject() runtime.Object { return deepcopy.Of(e) }
