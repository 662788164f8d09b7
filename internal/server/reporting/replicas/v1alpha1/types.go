package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/internal/engine/deepcopy"
)

// RegistrationState is the state of one registration on each server. It is computed when it is
// read. A registration in a manifest file is active when every server has the same files for the
// plugin. The name of the state consists of the registration's resource and name, as in
// mutatingwebhookconfigurations.podpolicy.
type RegistrationState struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Registration is the stored registration.
	Registration Registration `json:"registration"`
	// InForce reports whether every server enforces the stored registration.
	InForce bool `json:"inForce"`
	// Replicas are the servers that evaluate requests, by name.
	Replicas []Replica `json:"replicas"`
	// Problems are the reasons why an admission policy or a binding does not have its full effect,
	// as seen by the server that answers.
	Problems []Problem `json:"problems,omitempty"`
	// Costs are the costs of the expressions of an admission policy, as known to the server that
	// answers, in the order of the fields.
	Costs []ExpressionCost `json:"costs,omitempty"`
}

// ExpressionCost is the cost of an expression of an admission policy, in CEL cost units.
type ExpressionCost struct {
	// Field is the path of the expression in the policy.
	Field string `json:"field"`
	// WorstCase is the maximum cost of the expression. It is absent if the schemas of the kinds
	// that the policy names do not bound it.
	WorstCase *int64 `json:"worstCase,omitempty"`
	// Measured is the highest cost of the expression so far on the server that answers, since the
	// policy was written or the server was started. It is 0 if the expression was not evaluated.
	Measured int64 `json:"measured"`
	// Limit is the cost limit of the expression. An expression that exceeds it fails.
	Limit int64 `json:"limit"`
}

// Problem is a reason why an admission policy or a binding does not have its full effect.
type Problem struct {
	// Code names the problem, such as PolicyNotFound, ParamKindNotFound or ParamsNotFound.
	Code string `json:"code"`
	// Message is a sentence that names the field.
	Message string `json:"message"`
}

// Registration names a registration and its state.
type Registration struct {
	// Resource is the plural of its kind.
	Resource string `json:"resource"`
	// Name is its name.
	Name string `json:"name"`
	// ResourceVersion is the resource version of the stored object. It is empty if the registration
	// was deleted or comes from a manifest file.
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// Source is static for a registration from a manifest file, and absent for a registration of
	// the API.
	Source string `json:"source,omitempty"`
}

// Replica is the state of the registration on one server.
type Replica struct {
	// Name is the server's name for as long as it runs.
	Name string `json:"name"`
	// Address is the address at which clients reach it.
	Address string `json:"address"`
	// ResourceVersion is the resource version of the object that the server evaluates requests
	// against. It is empty if there is none.
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// ManifestsHash is the hash of the plugin's manifest files that the server enforces, for a
	// registration from a manifest file. It is empty if there are no files.
	ManifestsHash string `json:"manifestsHash,omitempty"`
	// Since is the latest time at which the server began to evaluate requests against it. It is
	// absent if ResourceVersion is empty.
	Since *metav1.MicroTime `json:"since,omitempty"`
	// InForce reports whether the server enforces the stored registration.
	InForce bool `json:"inForce"`
	// Off reports whether the server enforces no registration of this kind: its admission
	// plugin does not run, or --runtime-config switches the kind off.
	Off bool `json:"off,omitempty"`
	// Skipped are the webhooks of the registration that the server does not call, because their
	// servers could not be reached several times in a row. The server applies failurePolicy to
	// requests at once.
	Skipped []SkippedWebhook `json:"skipped,omitempty"`
}

// SkippedWebhook is a webhook that a server does not call until it can be reached again.
type SkippedWebhook struct {
	// Webhook is its name.
	Webhook string `json:"webhook"`
	// Target is the HOST:PORT of its server.
	Target string `json:"target"`
	// Since is when the first call failed.
	Since metav1.MicroTime `json:"since"`
	// Reason is the error of a later call.
	Reason string `json:"reason"`
}

// RegistrationStateList is a list of RegistrationState.
type RegistrationStateList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the states, by name.
	Items []RegistrationState `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (s *RegistrationState) DeepCopyObject() runtime.Object { return deepcopy.Of(s) }

// DeepCopyObject implements runtime.Object.
func (l *RegistrationStateList) DeepCopyObject() runtime.Object { return deepcopy.Of(l) }
