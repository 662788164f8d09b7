package lint

import (
	"crypto/x509"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

// Part is a part of the world around the registrations.
type Part string

// The parts, as messages name them.
const (
	Namespaces   Part = "namespaces"
	Services     Part = "services"
	Endpoints    Part = "endpoints"
	Workloads    Part = "workloads"
	Kinds        Part = "kinds"
	Definitions  Part = "definitions of custom resources"
	Access       Part = "access rights"
	Params       Part = "params"
	Waiting      Part = "objects that wait for initializers"
	Certificates Part = "served certificates"
)

// World is what is known of a place with registrations. It does not change while it is
// used.
type World struct {
	// Snapshot has the registrations. It must be set.
	Snapshot *snapshot.Snapshot
	// Now is the time by which certificates expire.
	Now time.Time
	// Gatehouse reports whether a Gatehouse server is known to enforce the registrations.
	// Snapshot.Kubernetes is set when another server is.
	Gatehouse bool
	// Partial reports whether what is not here may exist all the same, as with files.
	Partial bool
	// Unseen says why a part is not known at all: "may not list services". A part that is
	// not in it is known.
	Unseen map[Part]string
	// Patched are objects of files that a kustomization changes, with its file: they are not applied
	// as they are written, and nothing is found in them.
	Patched map[Object]string
	// Several are custom resources that files define with other versions again: a repository has several states
	// of a program, and nobody knows which versions are served together.
	Several map[schema.GroupResource]bool
	// Hidden says of sources why their entries cannot be seen.
	Hidden map[registration.Source]string

	// Written says how registration objects were written, by kind and name.
	Written map[Object]Written
	// Resources are what the API serves. Equivalents knows which of them are the same
	// objects.
	Resources   []Resource
	Equivalents plan.Equivalents
	// Namespaces are the labels of namespaces, by name.
	Namespaces map[string]map[string]string
	Services   map[types.NamespacedName]*corev1.Service
	// Elsewhere, if set, reports whether a webhook behind a service runs outside of the cluster,
	// at an address that the API server was given.
	Elsewhere func(types.NamespacedName) bool
	// Ready is how many endpoints of a service are ready; a service without endpoint slices
	// is not in it.
	Ready     map[types.NamespacedName]int
	Workloads []Workload
	// Conversions are the conversion webhooks of custom resources.
	Conversions []Conversion
	// Grants are what groups of users may do, as far as it concerns registrations.
	Grants []Grant
	// Params reads what policies refer to; nil if nothing does.
	Params plan.Params
	// Waiting are objects that wait for initializers.
	Waiting []WaitingObject
	// Injectors are the kinds of objects that a role of somebody may change, as far as rules
	// look at them: a program with that right can set its own caBundle.
	Injectors map[string]bool
	// Reviews reports whether webhooks judge reviews, as in Kubernetes before 1.37.
	Reviews bool
	// Upgrade is what the registrations are to work with; nil when nobody asks.
	Upgrade *Upgrade
	// Schemas returns the schema of a kind, nil for a kind that has none. If Schemas is nil, the types
	// of expressions are not known.
	Schemas func(schema.GroupVersionKind) *spec.Schema
	// Served are the certificates that webhooks present, by address; only those that were
	// asked are in it.
	Served map[Address]Served
}

// Written is how a registration object was written.
type Written struct {
	// APIVersion is that of the file; empty when it is not known.
	APIVersion  string
	Annotations map[string]string
	// UID is that of the object in a cluster.
	UID types.UID
	// Created is when the object was, and Enforced when the annotation about its enforcement was
	// written; zero when that is not known.
	Created, Enforced time.Time
	// Invalid is why no API server would take the object; its entries are not in the
	// snapshot then.
	Invalid []Invalid
}

// Invalid is a reason why an object is not taken.
type Invalid struct {
	// Field is the path of the field, empty for the object.
	Field   string
	Message string
}

// Resource is what the API serves under one name in one version.
type Resource struct {
	schema.GroupVersionResource
	Kind         schema.GroupVersionKind
	Namespaced   bool
	Subresources []Subresource
	// Custom reports whether a CustomResourceDefinition defines it, and Ruled whether this
	// definition has validation rules.
	Custom, Ruled bool
}

// Subresource is a subresource, and the kind of what is sent to it.
type Subresource struct {
	Name string
	Kind schema.GroupVersionKind
}

// Workload is what makes pods.
type Workload struct {
	Object
	// Pods is the template of its pods.
	Pods corev1.PodTemplateSpec
	// Replicas is how many pods it wants; -1 if the number of nodes says so.
	Replicas int
}

// Conversion is the conversion webhook of a custom resource.
type Conversion struct {
	Object
	Client registration.ClientConfig
}

// Grant is a right that a group of users has.
type Grant struct {
	// Binding gives the right, by Role.
	Binding Object
	Role    string
	// Group is the group that has it, and Rules are what it may do.
	Group string
	Rules []rbacv1.PolicyRule
}

// WaitingObject is an object that waits for initializers.
type WaitingObject struct {
	Object
	// Initializer is the first one that it waits for. Since is when the object was made.
	Initializer string
	Since       time.Time
}

// Address is where a webhook is reached: a host name and a port.
type Address struct {
	Host string
	Port int
}

// Served is what a webhook answered when it was asked for its certificate.
type Served struct {
	// Chain is what it presented, its own certificate first.
	Chain []*x509.Certificate
	// Err is why it did not. Untried reports that nobody connected to it, for this reason.
	Err     error
	Untried bool
}

// see reports whether a part is known.
func (w *World) sees(p Part) bool { return w.Unseen[p] == "" }

// Count returns how many webhooks, policies and initializers there are.
func (w *World) Count() (webhooks, policies, initializers int) {
	for _, d := range registration.Sources() {
		n := len(w.Snapshot.Entries(d.Source))
		switch {
		case d.Binds:
		case d.Policies:
			policies += n
		case d.Source == registration.Initializing:
			initializers += n
		default:
			webhooks += n
		}
	}
	return webhooks, policies, initializers
}

// Addresses returns where the webhooks are reached, those that convert custom resources
// included; each with its service, nil for one that has none.
func (w *World) Addresses() map[Address]*types.NamespacedName {
	found := map[Address]*types.NamespacedName{}
	add := func(c *registration.ClientConfig) {
		found[addressOf(c)] = nil
		if name, inside := namedService(c); inside {
			found[addressOf(c)] = &name
		}
	}
	for _, source := range hooks {
		for _, e := range w.Snapshot.Entries(source) {
			add(&e.ClientConfig)
		}
	}
	for i := range w.Conversions {
		add(&w.Conversions[i].Client)
	}
	return found
}

// Expiry is when calls of a webhook begin to fail, since a certificate is no longer valid.
type Expiry struct {
	// Object has the webhook. Webhook is its name, empty for the conversion webhook of a custom resource.
	Object  Object
	Webhook string
	// Use is caBundle, or served for the certificate that the webhook presents.
	Use   string
	Until time.Time
}

// Expiries returns when the certificates of the webhooks expire, as far as they can be read.
func (w *World) Expiries() (list []Expiry) {
	of := func(object Object, webhook string, c *registration.ClientConfig) {
		if certificates, err := bundle(c.CABundle); err == nil {
			_, until := valid(certificates, w.Now)
			list = append(list, Expiry{object, webhook, "caBundle", until})
		}
		if chain := w.Served[addressOf(c)].Chain; len(chain) > 0 {
			list = append(list, Expiry{object, webhook, "served", chain[0].NotAfter})
		}
	}
	for _, source := range hooks {
		for _, e := range w.Snapshot.Entries(source) {
			of(objectOf(e.Entry), e.Name, &e.ClientConfig)
		}
	}
	for i := range w.Conversions {
		of(w.Conversions[i].Object, "", &w.Conversions[i].Client)
	}
	return list
}
