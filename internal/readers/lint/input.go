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
	"github.com/gatehouse-dev/gatehouse/internal/engine/expression"
)

// Part is a part of the environment of the registrations.
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

// Input is the known state of a cluster, or of the files for one. It does not change while it is used.
type Input struct {
	// Snapshot has the registrations. It must be set.
	Snapshot *snapshot.Snapshot
	// Now is the time for the expiry of certificates.
	Now time.Time
	// Gatehouse is set if a Gatehouse server is known to enforce the registrations. Snapshot.Kubernetes is set
	// for another server.
	Gatehouse bool
	// Partial is set if objects that are not in the Input may exist nevertheless, as with files.
	Partial bool
	// Unseen has the reason for each unknown part, such as "may not list services". Parts without an entry are
	// known.
	Unseen map[Part]string
	// Patched are objects of files that a kustomization changes, or has beside it and does not read, with its file. They are not applied as
	// written, so they have no findings.
	Patched map[Object]string
	// Kustomized is set if the files have a kustomization, which may change the namespaces of objects.
	Kustomized bool
	// Several are custom resources whose CRDs differ in their versions between files: a repository may have
	// several states of a program, and the versions that are served together are unknown.
	Several map[schema.GroupResource]bool
	// Kept has the namespaces of the objects of files, and of the Roles about them, by kind.
	Kept map[Kept]bool
	// Issued are the Certificates of cert-manager in files, with their DNS names; never nil for a Certificate.
	Issued map[types.NamespacedName][]string
	// Secrets is set if the files have a Secret.
	Secrets bool
	// Hidden has the reason for each source whose entries cannot be seen.
	Hidden map[registration.Source]string

	// Written has the source form of registration objects, by kind and name.
	Written map[Object]Written
	// Resources are the resources of the API. Equivalents knows which of them serve the same objects.
	Resources   []Resource
	Equivalents plan.Equivalents
	// Namespaces are the labels of namespaces, by name.
	Namespaces map[string]map[string]string
	// Services has each service by its name. A service without a namespace in its file has an empty namespace there:
	// kubectl and kustomize set it.
	Services map[types.NamespacedName]*corev1.Service
	// Elsewhere, if set, reports whether a webhook behind a service runs outside of the cluster, at an address
	// that the API server was given.
	Elsewhere func(types.NamespacedName) bool
	// Ready counts the ready endpoints of each service; services without endpoint slices are absent.
	Ready     map[types.NamespacedName]int
	Workloads []Workload
	// Conversions are the conversion webhooks of custom resources.
	Conversions []Conversion
	// Grants are the rights of groups of users, as far as they concern registrations.
	Grants []Grant
	// Params reads the params of policies; nil if no policy has params.
	Params plan.Params
	// Waiting are objects that wait for initializers.
	Waiting []WaitingObject
	// Injectors are the kinds of objects that a role in the Input may change, limited to the kinds that rules
	// check: a program with that right can set its own caBundle.
	Injectors map[string]bool
	// Managed reports whether the files have a ClusterServiceVersion with an object: the Operator Lifecycle Manager sets its
	// caBundles. It is nil without one.
	Managed func(Object) bool
	// NoRoles is set if the files have no role, so that the rights of programs are unknown.
	NoRoles bool
	// Reviews is set if webhooks are called for reviews, as in Kubernetes before 1.37.
	Reviews bool
	// Upgrade is the release with which the registrations must work; nil if it was not requested.
	Upgrade *Upgrade
	// Schemas returns the schema of a kind, nil if the kind has none. If Schemas is nil, the types of
	// expressions are unknown.
	Schemas func(schema.GroupVersionKind) *spec.Schema
	// Minimal returns the smallest valid object of a kind that has an object at a path, with the defaults of an API
	// server; nil if it is not known. Steps into lists are indices.
	Minimal func(kind schema.GroupVersionKind, at ...string) *expression.Partial
	// Apart, if set, reports whether nothing shows that two objects of files are for one cluster.
	Apart func(a, b Object) bool
	// Served are the certificates that webhooks present, by address, for webhooks that were contacted.
	Served map[Address]Served
}

// InjectCAFrom is the annotation that names the Certificate whose CA cert-manager sets: NAMESPACE/NAME.
const InjectCAFrom = "cert-manager.io/inject-ca-from"

// Kept is a kind with objects in a namespace.
type Kept struct {
	schema.GroupKind
	Namespace string
}

// Written is the source form of a registration object.
type Written struct {
	// APIVersion in the file; empty if unknown.
	APIVersion string
	// Annotations include the annotations of kustomizations. Injection is InjectCAFrom in the file itself.
	Annotations, Labels map[string]string
	Injection           string
	// Fields are the fields of the webhooks in a file, such as webhooks[0].timeoutSeconds, each with whether it has a
	// value; nil if unknown.
	Fields map[string]bool
	// PolicyName is the policy that a binding names; empty for other objects, and in a cluster.
	PolicyName string
	// UID of the object in a cluster.
	UID types.UID
	// Created is the creation time of the object, and Enforced the time when the annotation about its
	// enforcement was written; zero if unknown.
	Created, Enforced time.Time
	// Invalid lists the reasons why every API server would reject the object; its entries are not in the
	// snapshot then.
	Invalid []Invalid
	// Unknown lists the fields that the kind does not have, each with a suggestion in place of the message, or none.
	Unknown []Invalid
}

// Invalid is a reason why an object is rejected.
type Invalid struct {
	// Field is the path of the field, empty for the object.
	Field   string
	Message string
}

// Resource is one version of a resource that the API serves.
type Resource struct {
	schema.GroupVersionResource
	Kind         schema.GroupVersionKind
	Namespaced   bool
	Subresources []Subresource
	// Custom is set if a CRD defines the resource, and Ruled if that CRD has validation rules or describes the spec.
	Custom, Ruled bool
}

// Subresource is a subresource, with the kind of its request bodies.
type Subresource struct {
	Name string
	Kind schema.GroupVersionKind
}

// Workload is an object that creates pods.
type Workload struct {
	Object
	// Anywhere is set if the file names no namespace: kubectl and kustomize set it.
	Anywhere bool
	// Pods is the template of its pods.
	Pods corev1.PodTemplateSpec
	// Replicas is the desired number of pods; -1 if it depends on the number of nodes.
	Replicas int
	// Recreated is whether a new pod starts after the old one has ended: there is never more than one.
	Recreated bool
}

// String returns the object without a namespace that its file does not name.
func (w *Workload) String() string {
	if w.Anywhere {
		return Object{Kind: w.Kind, Name: w.Name}.String()
	}
	return w.Object.String()
}

// Conversion is the conversion webhook of a custom resource.
type Conversion struct {
	Object
	Client registration.ClientConfig
	// Storage is the storage version, and Stored are the versions in which objects may be stored; nil if unknown.
	Storage string
	Stored  []string
}

// Grant is a right of a group of users.
type Grant struct {
	// Binding grants the right, by Role.
	Binding Object
	Role    string
	// Group is the group with the right, and Rules are its rights.
	Group string
	Rules []rbacv1.PolicyRule
}

// WaitingObject is an object that waits for initializers.
type WaitingObject struct {
	Object
	// Initializer is the first pending initializer. Since is the creation time of the object.
	Initializer string
	Since       time.Time
}

// Address is the address of a webhook: a host name and a port.
type Address struct {
	Host string
	Port int
}

// Served is the result of a TLS connection to a webhook.
type Served struct {
	// Chain is the presented certificate chain, the webhook's own certificate first.
	Chain []*x509.Certificate
	// Err is the reason for a failed connection. Untried is set if no connection was made; Err then is the
	// reason.
	Err     error
	Untried bool
}

// sees reports whether a part is known.
func (w *Input) sees(p Part) bool { return w.Unseen[p] == "" }

// Count returns the numbers of webhooks, policies and initializers.
func (w *Input) Count() (webhooks, policies, initializers int) {
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

// Unchecked returns the number of webhooks, policies and initializers that a kustomization changes. Rules find nothing in
// them.
func (w *Input) Unchecked() (n int) {
	for _, d := range registration.Sources() {
		for _, e := range w.Snapshot.Entries(d.Source) {
			if !d.Binds && w.Patched[objectOf(e.Entry)] != "" {
				n++
			}
		}
	}
	return n
}

// Addresses returns the addresses of the webhooks, including conversion webhooks, each with its service, or nil
// if it has none.
func (w *Input) Addresses() map[Address]*types.NamespacedName {
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

// Expiry is the time when a certificate expires, so that calls of a webhook begin to fail.
type Expiry struct {
	// Object has the webhook. Webhook is its name, empty for the conversion webhook of a custom resource.
	Object  Object
	Webhook string
	// Use is caBundle, or served for the certificate that the webhook presents.
	Use   string
	Until time.Time
}

// Expiries returns the expiry of the webhooks' certificates, as far as they can be read.
func (w *Input) Expiries() (list []Expiry) {
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
