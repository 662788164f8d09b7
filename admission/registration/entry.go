package registration

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gatehouse-dev/gatehouse/internal/engine/condition"
)

// FailurePolicy says what happens to a request when a webhook or a policy fails.
type FailurePolicy string

const (
	// Ignore lets the request go on as if the webhook or policy did not exist.
	Ignore FailurePolicy = "Ignore"
	// Fail rejects the request.
	Fail FailurePolicy = "Fail"
)

// Entry is one webhook, initializer, policy or binding that a registration object registers:
// where it comes from, which requests it matches, and its action. An Entry has all defaults and
// is the same for all API versions, so that its readers need not know versions. Entries are
// immutable after conversion.
type Entry struct {
	Origin
	// Match is never nil; entries may share one.
	*Match
	// FailurePolicy says what happens to a request when the action cannot be completed; it is
	// never empty.
	FailurePolicy FailurePolicy
	// Order says before and after which entries of its source the entry wants to act; nil when
	// it does not say.
	Order *Order
	// Enforcement is what the entry's object says about its enforcement; nil when the object
	// says nothing (S28).
	Enforcement *Enforcement
	// The action: one of these is not nil.
	*Webhook
	*Initializer
	Policy  *Policy
	Binding *Binding
}

// Origin says where an entry comes from, and identifies it.
type Origin struct {
	// Source is the registration kind.
	Source Source
	// Configuration is the metadata.name of the registration object.
	Configuration string
	// ConfigurationUID and ConfigurationVersion are the uid and resourceVersion of the object.
	ConfigurationUID     types.UID
	ConfigurationVersion string
	// Index is the position in the registration object's list, from 0.
	Index int
	// Name is the entry's own name; empty when the registration object is the entry, as a
	// policy and a binding are.
	Name string
	// Ordinal counts the entries before this one in the same configuration that
	// have the same name; 0 except for duplicates, which v1beta1 allows (S5.2).
	Ordinal int
	// File is the manifest file that the registration object is in (S21); empty when the
	// object comes from the API.
	File string
}

// Static reports whether the entry comes from a manifest file (S21).
func (o *Origin) Static() bool { return o.File != "" }

// String names the entry as messages do: configuration/name, or the name of the object
// that is the entry.
func (o *Origin) String() string {
	switch {
	case o.Name == "":
		return o.Configuration
	case o.Configuration == "":
		// An audit log does not always say it.
		return o.Name
	}
	return o.Configuration + "/" + o.Name
}

// Match selects requests. All sources use the same type.
type Match struct {
	// Rules say which operations on which resources match; one matching rule is enough. A
	// binding without rules matches everything that its policy matches (S14.5).
	Rules []Rule
	// Exclude are rules about requests that do not match, even if Rules match them.
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
	// ClientConfig says where the webhook is.
	ClientConfig ClientConfig
	// SideEffects is None, NoneOnDryRun, Some or Unknown; empty when the stored object does not
	// have the field, which is an error on dry run (S7.4).
	SideEffects string
	// Timeout is how long one call may take, 1 s to 30 s.
	Timeout time.Duration
	// ReviewVersions is admissionReviewVersions in order of preference; those of
	// External are ["v1alpha1"].
	ReviewVersions []string
	// MayReinvoke is reinvocationPolicy IfNeeded; Mutating only.
	MayReinvoke bool
}

// Initializer is the action of adding a name to metadata.initializers.pending of a new object.
// The name is Origin.Name.
type Initializer struct {
	// Parallel reports whether the initializer may act at the same time as its neighbours in
	// the order.
	Parallel bool
	// Finalizer is the finalizer that the object gets together with the name; empty means none.
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
	// Port is the service's port; 0 lets the resolver choose as in S8.4
	// (the only port of the service; of several, 443). Only External hooks
	// leave it 0.
	Port int32
}
