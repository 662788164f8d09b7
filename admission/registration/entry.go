package registration

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gatehouse-dev/gatehouse/internal/engine/condition"
)

// FailurePolicy says what becomes of a request when its webhook cannot be asked.
type FailurePolicy string

const (
	// Ignore lets the request go on without the webhook.
	Ignore FailurePolicy = "Ignore"
	// Fail rejects the request.
	Fail FailurePolicy = "Fail"
)

// Entry is one thing that a registration object registers, whichever kind and API
// version it was written in: where it comes from, which requests it is for, and what
// is done with them. All defaults are filled in: an Entry is complete, and nothing that
// reads one knows about versions. Entries are immutable after conversion.
type Entry struct {
	Origin
	// Match is never nil; entries may share one.
	*Match
	// FailurePolicy says what becomes of a request when the action cannot be
	// completed; it is never empty.
	FailurePolicy FailurePolicy
	// Order is what is asked of the order among the entries of the source; nil for nothing.
	Order *Order
	// Enforcement is how soft the entry is by its own object's word; nil when that says nothing,
	// and the entry is hard (S28).
	Enforcement *Enforcement
	// The action is the one of these that is not nil.
	*Webhook
	*Initializer
	Policy  *Policy
	Binding *Binding
}

// Origin says where an entry comes from, and tells it from all others.
type Origin struct {
	// Source is the registration kind.
	Source Source
	// Configuration is the metadata.name of the registration object.
	Configuration string
	// ConfigurationUID and ConfigurationVersion are its uid and resourceVersion.
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
	if o.Name == "" {
		return o.Configuration
	}
	return o.Configuration + "/" + o.Name
}

// Match selects requests. It is the same for every source.
type Match struct {
	// Rules say which operations on which resources are wanted; any may match. Those of a
	// binding may be empty, which means all that its policy wants (S14.5).
	Rules []Rule
	// Exclude are rules about requests that are not wanted, whatever Rules say.
	Exclude []Rule
	// Equivalent is matchPolicy: true for Equivalent, false for Exact.
	Equivalent bool
	// NamespaceSelector and ObjectSelector: nil selects nothing (S1.3), empty
	// selects everything. Sources without one have an empty one.
	NamespaceSelector *metav1.LabelSelector
	ObjectSelector    *metav1.LabelSelector
	// MatchConditions are CEL expressions that must all be true.
	MatchConditions []MatchCondition
}

// Webhook is the action of calling a webhook.
type Webhook struct {
	// ClientConfig says where the webhook is.
	ClientConfig ClientConfig
	// SideEffects is None, NoneOnDryRun, Some or Unknown; empty when the stored
	// object had none, which is an error on dry run (S7.4).
	SideEffects string
	// Timeout is how long one call may take, 1 s to 30 s.
	Timeout time.Duration
	// ReviewVersions is admissionReviewVersions in order of preference; those of
	// External are ["v1alpha1"].
	ReviewVersions []string
	// MayReinvoke is reinvocationPolicy IfNeeded; Mutating only.
	MayReinvoke bool
}

// Initializer is the action of adding a name to metadata.initializers.pending of a new
// object. The name is that of the entry.
type Initializer struct {
	// Parallel reports whether it may act at the same time as its neighbours.
	Parallel bool
	// Finalizer is what the object gets together with the name; empty means nothing.
	Finalizer string
}

// Rule selects requests by what they do to which resource. Every list is
// matched with the wildcards of S2.5 to S2.8.
type Rule struct {
	Operations  []string
	APIGroups   []string
	APIVersions []string
	Resources   []string
	// ResourceNames are the names of the objects that are meant; empty means all.
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
