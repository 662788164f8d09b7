package registration

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gatehouse-dev/gatehouse/admission/condition"
)

// Source says which registration kind a Hook was declared by, and with it the
// phase the hook runs in.
type Source uint8

const (
	// Mutating hooks come from MutatingWebhookConfiguration (v1, v1beta1).
	Mutating Source = iota
	// Validating hooks come from ValidatingWebhookConfiguration (v1, v1beta1).
	Validating
	// External hooks come from ExternalAdmissionHookConfiguration (v1alpha1).
	// They run in the validating phase.
	External
)

// Kind returns the kind of the registration object, as error messages name it.
func (s Source) Kind() string {
	switch s {
	case Mutating:
		return "MutatingWebhookConfiguration"
	case Validating:
		return "ValidatingWebhookConfiguration"
	case External:
		return "ExternalAdmissionHookConfiguration"
	}
	panic(fmt.Sprintf("unknown registration source %d", s))
}

// FailurePolicy says what becomes of a request when its webhook cannot be asked.
type FailurePolicy string

const (
	// Ignore lets the request go on without the webhook.
	Ignore FailurePolicy = "Ignore"
	// Fail rejects the request.
	Fail FailurePolicy = "Fail"
)

// Hook is one webhook as registered, whichever API version it was written in.
// All defaults are filled in: a Hook is complete, and nothing that reads one
// knows about versions. Hooks are immutable after conversion.
type Hook struct {
	// Source is the registration kind.
	Source Source
	// Configuration is the metadata.name of the registration object.
	Configuration string
	// ConfigurationUID and ConfigurationVersion are its uid and resourceVersion.
	ConfigurationUID     types.UID
	ConfigurationVersion string
	// Index is the position in the registration object's list, from 0.
	Index int
	// Name is the webhook's own name.
	Name string
	// Ordinal counts the hooks before this one in the same configuration that
	// have the same name; 0 except for duplicates, which v1beta1 allows (S5.2).
	Ordinal int

	// ClientConfig says where the webhook is.
	ClientConfig ClientConfig
	// Rules say which operations on which resources it wants; any may match.
	Rules []Rule
	// FailurePolicy is never empty.
	FailurePolicy FailurePolicy
	// Equivalent is matchPolicy: true for Equivalent, false for Exact.
	Equivalent bool
	// NamespaceSelector and ObjectSelector: nil selects nothing (S1.3), empty
	// selects everything. External hooks have an empty ObjectSelector.
	NamespaceSelector *metav1.LabelSelector
	ObjectSelector    *metav1.LabelSelector
	// MatchConditions are CEL expressions that must all be true.
	MatchConditions []MatchCondition
	// SideEffects is None, NoneOnDryRun, Some or Unknown; empty when the stored
	// object had none, which is an error on dry run (S7.4).
	SideEffects string
	// Timeout is how long one call may take, 1 s to 30 s.
	Timeout time.Duration
	// ReviewVersions is admissionReviewVersions in order of preference;
	// External hooks have ["v1alpha1"].
	ReviewVersions []string
	// MayReinvoke is reinvocationPolicy IfNeeded; mutating hooks only.
	MayReinvoke bool
}

// SupportsDryRun tells whether the hook may be called for a dry-run request
// (S7.6).
func (h *Hook) SupportsDryRun() bool {
	return h.SideEffects == "None" || h.SideEffects == "NoneOnDryRun"
}

// String names the hook as messages do: configuration/name.
func (h *Hook) String() string { return h.Configuration + "/" + h.Name }

// Rule selects requests by what they do to which resource. Every list is
// matched with the wildcards of S2.5 to S2.8.
type Rule struct {
	Operations  []string
	APIGroups   []string
	APIVersions []string
	Resources   []string
	// Scope is "Cluster", "Namespaced" or "*"; never empty.
	Scope string
}

// MatchCondition is one named CEL expression.
type MatchCondition = condition.Condition

// ClientConfig is the address of a webhook: URL or Service, never both.
type ClientConfig struct {
	// URL is empty when Service is set.
	URL string
	// Service is nil when URL is set.
	Service *Service
	// CABundle is PEM; empty means the system's roots.
	CABundle []byte
}

// Service addresses a webhook behind a Service object.
type Service struct {
	Namespace string
	Name      string
	// Path is as configured; empty means "/".
	Path string
	// Port is the service's port; 0 lets the resolver choose as seed 000 says
	// (the only port of the service; of several, 443). Only External hooks
	// leave it 0.
	Port int32
}
