package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/internal/engine/deepcopy"
)

// RegistrationState says for one registration what each server enforces. It is
// computed when it is read. A registration of a manifest file is in force when every server
// has the same files for the plugin. Its name is the registration's resource and name, as
// in mutatingwebhookconfigurations.podpolicy.
type RegistrationState struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Registration is the registration as it is stored.
	Registration Registration `json:"registration"`
	// InForce reports whether every server enforces the registration as it is stored.
	InForce bool `json:"inForce"`
	// Replicas are the servers that judge requests, by name.
	Replicas []Replica `json:"replicas"`
	// Problems are what keeps an admission policy or a binding from doing what it is there
	// for, as the server that answers sees it.
	Problems []Problem `json:"problems,omitempty"`
	// Costs are what the expressions of an admission policy cost, as the server that answers
	// knows it, in the order of the fields.
	Costs []ExpressionCost `json:"costs,omitempty"`
}

// ExpressionCost is what an expression of an admission policy costs, in the units of CEL.
type ExpressionCost struct {
	// Field is the path of the expression in the policy.
	Field string `json:"field"`
	// WorstCase is what the expression costs at most. It is absent when the schemas of the
	// kinds that the policy names do not bound it.
	WorstCase *int64 `json:"worstCase,omitempty"`
	// Measured is the most that the expression cost so far on the server that answers, since
	// the policy was written or the server was started. It is 0 when it was not evaluated.
	Measured int64 `json:"measured"`
	// Limit is what the expression may cost. If it costs more, it fails.
	Limit int64 `json:"limit"`
}

// Problem is what keeps an admission policy or a binding from doing what it is there for.
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
	// ResourceVersion is that of the stored object; it is empty when the
	// registration was deleted, and for one of a manifest file.
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// Source is static for a registration of a manifest file, and absent for one of the API.
	Source string `json:"source,omitempty"`
}

// Replica is what one server enforces.
type Replica struct {
	// Name is the server's name for as long as it runs.
	Name string `json:"name"`
	// Address is where clients reach it.
	Address string `json:"address"`
	// ResourceVersion is that of the object that the server judges requests by. It
	// is empty when there is none.
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// ManifestsHash is the hash of the manifest files of the plugin that the server enforces,
	// for a registration of a manifest file. It is empty when there are none.
	ManifestsHash string `json:"manifestsHash,omitempty"`
	// Since is from when on at the latest the server judged requests by it; it is
	// absent when ResourceVersion is empty.
	Since *metav1.MicroTime `json:"since,omitempty"`
	// InForce reports whether this is the registration as it is stored.
	InForce bool `json:"inForce"`
	// Off reports whether the server enforces no registration of this kind: its admission
	// plugin does not run, or --runtime-config switches the kind off.
	Off bool `json:"off,omitempty"`
	// Skipped are the webhooks of the registration that the server does not call,
	// because their servers could not be reached several times in a row. Requests
	// get at once what failurePolicy says.
	Skipped []SkippedWebhook `json:"skipped,omitempty"`
}

// SkippedWebhook is a webhook that a server does not call until it can be reached
// again.
type SkippedWebhook struct {
	// Webhook is its name.
	Webhook string `json:"webhook"`
	// Target is the HOST:PORT of its server.
	Target string `json:"target"`
	// Since is when the first call failed.
	Since metav1.MicroTime `json:"since"`
	// Reason is how a later call failed.
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
