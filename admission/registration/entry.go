package registration

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gatehouse-dev/gatehouse/internal/engine/condition"
)

// FailurePolicy is the effect of a failed webhook or policy on a request.
type FailurePolicy string

const (
	// Ignore lets the request continue as if the webhook or policy did not exist.
	Ignore FailurePolicy = "Ignore"
	// Fail rejects the request.
	Fail FailurePolicy = "Fail"
)

// Entry is one webhook, initializer, policy or binding: its origin, the requests it matches, and
// its action. An Entry has all defaults and is the same for all API versions, so that its readers
// need not know versions. Entries are immutable after conversion.
type Entry struct {
	Origin
	// Match is never nil. Entries may share it.
	*Match
	// FailurePolicy applies if the action cannot be completed; it is never empty.
	FailurePolicy FailurePolicy
	// Order names the entries of its source before and after which the entry acts; nil if there are
	// none.
	Order *Order
	// Enforcement has the enforcement annotations of the entry's object; nil if there are none
	// (S28).
	Enforcement *Enforcement
	// The action: exactly one of these is not nil.
	*Webhook
	*Initializer
	Policy  *Policy
	Binding *Binding
}

// Origin identifies an entry and its source.
type Origin struct {
	// Source is the kind of the object.
	Source Source
	// Configuration is the metadata.name of the object.
	Configuration string
	// ConfigurationUID and ConfigurationVersion are the uid and resourceVersion of the object.
	ConfigurationUID     types.UID
	ConfigurationVersion string
	// Index is the position in the object's list, from 0.
	Index int
	// Name is the entry's own name; empty if the object is the entry, such as a policy or a
	// binding.
	Name string
	// Ordinal is the number of earlier entries with the same name in the same configuration; 0
	// except for duplicates, which v1beta1 allows (S5.2).
	Ordinal int
	// File is the manifest file of the object (S21); empty for an object of the API.
	File string
}

// Static reports whether the entry comes from a manifest file (S21).
func (o *Origin) Static() bool { return o.File != "" }

// String returns the entry as messages name it: CONFIGURATION/NAME, or the object's name if the
// object is the entry.
func (o *Origin) String() string {
	switch {
	case o.Name == "":
		return o.Configuration
	case o.Configuration == "":
		// An audit log does not always contain the configuration.
		return o.Name
	}
	return o.Configuration + "/" + o.Name
}

// Match selects requests. All sources use the same type.
type Match struct {
	// Rules match operations on resources; one matching rule is enough. A binding without rules
	// matches all requests that match its policy (S14.5).
	Rules []Rule
	// Exclude are rules that exclude requests, even if Rules match them.
	Exclude []Rule
	// Equivalent is matchPolicy: true for Equivalent, false for Exact.
	Equivalent bool
	// NamespaceSelector and ObjectSelector: nil selects nothing (S1.3), and an empty selector
	// selects everything. Entries of a source without such a field have an empty selector.
	NamespaceSelector *metav1.LabelSelector
	ObjectSelector    *metav1.LabelSelector
	// MatchConditions are CEL expressions that must all be true.
	MatchConditions []MatchCondition
}

// Webhook is the action of calling a webhook.
type Webhook struct {
	// ClientConfig is the address of the webhook.
	ClientConfig ClientConfig
	// SideEffects is None, NoneOnDryRun, Some or Unknown; empty if the stored object does not have
	// the field, which is an error for a dry run (S7.4).
	SideEffects string
	// Timeout bounds one call, 1 s to 30 s.
	Timeout time.Duration
	// ReviewVersions is admissionReviewVersions in order of preference; ["v1alpha1"] for External.
	ReviewVersions []string
	// MayReinvoke is reinvocationPolicy IfNeeded; Mutating only.
	MayReinvoke bool
}

// Initializer is the action of adding a name to metadata.initializers.pending of a new object.
// The name is Origin.Name.
type Initializer struct {
	// Parallel reports whether the initializer may act at the same time as adjacent initializers in
	// the order.
	Parallel bool
	// Finalizer is added to the object together with the name; empty means none.
	Finalizer string
}

// Rule selects requests by operation and resource. Every list is matched with the wildcards of
// S2.5 to S2.8.
type Rule struct {
	Operations  []string
	APIGroups   []string
	APIVersions []string
	Resources   []string
	// ResourceNames are the names of the objects that the rule matches; empty means all.
	ResourceNames []string
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
	// Port is the service's port; 0 lets the resolver choose as in S8.4 (the only port of the
	// service, or 443 if there are several). Only External hooks leave it 0.
	Port int32
}
