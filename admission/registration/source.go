package registration

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
)

// Source is the source of entries: a kind of object. Its value is the index of its Descriptor in
// Sources.
type Source uint8

const (
	// Mutating entries come from MutatingWebhookConfiguration (v1, v1beta1).
	Mutating Source = iota
	// Validating entries come from ValidatingWebhookConfiguration (v1, v1beta1).
	Validating
	// External entries come from ExternalAdmissionHookConfiguration (v1alpha1).
	External
	// Initializing entries come from InitializerConfiguration (v1alpha1).
	Initializing
	// ValidatingPolicies are ValidatingAdmissionPolicy objects, each one entry, and
	// ValidatingBindings the ValidatingAdmissionPolicyBinding objects that activate them.
	ValidatingPolicies
	ValidatingBindings
	// MutatingPolicies are MutatingAdmissionPolicy objects, and MutatingBindings the
	// MutatingAdmissionPolicyBinding objects that activate them.
	MutatingPolicies
	MutatingBindings
)

// The names of the admission plugins for webhooks, policies and initializers, as in flags,
// configuration files and metrics (S9.2).
const (
	InitializersPlugin     = "Initializers"
	MutatingPolicyPlugin   = "MutatingAdmissionPolicy"
	MutatingPlugin         = "MutatingAdmissionWebhook"
	ValidatingPolicyPlugin = "ValidatingAdmissionPolicy"
	ExternalPlugin         = "GenericAdmissionWebhook"
	ValidatingPlugin       = "ValidatingAdmissionWebhook"
)

// Pass is one of the two passes of a request through admission.
type Pass uint8

const (
	// MutatingPass may change the object.
	MutatingPass Pass = iota
	// ValidatingPass validates the final object.
	ValidatingPass
)

// String returns the name of the pass: mutating or validating.
func (p Pass) String() string {
	if p == MutatingPass {
		return "mutating"
	}
	return "validating"
}

// Descriptor has the properties of a source. To add a source, add a row to the table sources, and
// its action to Entry.
type Descriptor struct {
	Source Source
	// Kind is the kind of the object, and Resource its name in URLs.
	Kind     string
	Resource string
	// Versions are the API versions of the kind, the preferred version first.
	Versions []string
	// Noun names the configuration in messages (S11.11).
	Noun string
	// Plugin is the admission plugin for the entries, and Pass the pass in which it acts.
	Plugin string
	Pass   Pass
	// Policies reports whether the entries are admission policies. The entries of the source
	// Bindings activate them.
	Policies bool
	Bindings Source
	// Binds reports whether the entries are bindings, which activate policies of the source Bound
	// and have no action of their own.
	Binds bool
	Bound Source
	// Manifests reports whether manifest files may contain entries, too (S21.6).
	Manifests bool
	// parse returns the entries of an object of the kind.
	parse func(runtime.Object) []*Entry
}

// String returns the kind of the source's objects.
func (s Source) String() string { return s.Descriptor().Kind }

// Descriptor returns the properties of the source. The caller must not change them.
func (s Source) Descriptor() *Descriptor { return &sources[s] }

// sources has a row for every Source.
var sources = [...]Descriptor{
	Mutating: {
		Source: Mutating, Kind: MutatingKind, Resource: "mutatingwebhookconfigurations", Versions: []string{"v1", "v1beta1"}, Noun: "Webhook",
		Plugin: MutatingPlugin, Pass: MutatingPass, Manifests: true, parse: parseMutating,
	},
	Validating: {
		Source: Validating, Kind: ValidatingKind, Resource: "validatingwebhookconfigurations", Versions: []string{"v1", "v1beta1"}, Noun: "Webhook",
		Plugin: ValidatingPlugin, Pass: ValidatingPass, Manifests: true, parse: parseValidating,
	},
	External: {
		Source: External, Kind: ExternalKind, Resource: "externaladmissionhookconfigurations", Versions: []string{"v1alpha1"}, Noun: "ExternalAdmissionHook",
		Plugin: ExternalPlugin, Pass: ValidatingPass, parse: parseExternal,
	},
	Initializing: {
		Source: Initializing, Kind: InitializerKind, Resource: "initializerconfigurations", Versions: []string{"v1alpha1"}, Noun: "initializer",
		Plugin: InitializersPlugin, Pass: MutatingPass, parse: parseInitializers,
	},
	ValidatingPolicies: {
		Source: ValidatingPolicies, Kind: ValidatingPolicyKind, Resource: "validatingadmissionpolicies", Versions: []string{"v1"}, Noun: ValidatingPolicyKind,
		Plugin: ValidatingPolicyPlugin, Pass: ValidatingPass, Manifests: true, Policies: true, Bindings: ValidatingBindings, parse: parseValidatingPolicy,
	},
	ValidatingBindings: {
		Source: ValidatingBindings, Kind: ValidatingBindingKind, Resource: "validatingadmissionpolicybindings", Versions: []string{"v1"}, Noun: ValidatingBindingKind,
		Plugin: ValidatingPolicyPlugin, Pass: ValidatingPass, Manifests: true, Binds: true, Bound: ValidatingPolicies, parse: parseValidatingBinding,
	},
	MutatingPolicies: {
		Source: MutatingPolicies, Kind: MutatingPolicyKind, Resource: "mutatingadmissionpolicies", Versions: []string{"v1"}, Noun: MutatingPolicyKind,
		Plugin: MutatingPolicyPlugin, Pass: MutatingPass, Manifests: true, Policies: true, Bindings: MutatingBindings, parse: parseMutatingPolicy,
	},
	MutatingBindings: {
		Source: MutatingBindings, Kind: MutatingBindingKind, Resource: "mutatingadmissionpolicybindings", Versions: []string{"v1"}, Noun: MutatingBindingKind,
		Plugin: MutatingPolicyPlugin, Pass: MutatingPass, Manifests: true, Binds: true, Bound: MutatingPolicies, parse: parseMutatingBinding,
	},
}

// order lists the sources in the order in which their plugins run by default (S9.3).
var order = []Source{Initializing, MutatingPolicies, Mutating, ValidatingPolicies, External, Validating}

// InOrder returns the sources in the order in which their plugins run by default (S9.3). Sources
// without a plugin, such as bindings, are left out. The caller must not change the list.
func InOrder() []Source { return order }

// CallsAfter returns the number of plugins that call webhooks after the plugin of the source, in
// the recommended order.
func (s Source) CallsAfter() int {
	n := 0
	for _, later := range order[slices.Index(order, s)+1:] {
		if d := later.Descriptor(); !d.Policies && later != Initializing {
			n++
		}
	}
	return n
}

// Sources returns the descriptors of all sources, by value of Source. The caller must
// not change them.
func Sources() []Descriptor { return sources[:] }
