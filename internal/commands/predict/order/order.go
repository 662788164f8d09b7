package order

import (
	"context"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
)

// Phase is a step of the order in which objects are created.
type Phase int

const (
	// Definitions are namespaces and CRDs.
	Definitions Phase = iota
	// Readings are the objects that admission plugins read, and roles.
	Readings
	// Grants are role bindings, which can only be created if their roles exist.
	Grants
	// Params are the params of policies.
	Params
	// Registrations are policies and webhook configurations, and Bindings are the bindings that activate policies.
	Registrations
	Bindings
	// Fixed are services that request an address or a port. They come before the other services, for which the server
	// chooses free ones.
	Fixed
	Others
)

// AsApplied is the order in which people apply objects to a cluster: registrations are active for all later objects.
var AsApplied = []Phase{Definitions, Readings, Grants, Params, Registrations, Bindings, Fixed, Others}

// AsStored is the order in which a stage loads objects: registrations are not active for existing objects.
var AsStored = []Phase{Definitions, Readings, Grants, Params, Fixed, Others, Registrations, Bindings}

// API groups whose objects come first.
const (
	RBAC       = "rbac.authorization.k8s.io"
	Extensions = "apiextensions.k8s.io"
)

var phaseOf = map[schema.GroupKind]Phase{
	{Kind: "Namespace"}: Definitions,
	{Group: Extensions, Kind: "CustomResourceDefinition"}:    Definitions,
	{Group: "apiregistration.k8s.io", Kind: "APIService"}:    Definitions,
	{Kind: "ServiceAccount"}:                                 Readings,
	{Kind: "LimitRange"}:                                     Readings,
	{Kind: "ResourceQuota"}:                                  Readings,
	{Kind: "Node"}:                                           Readings,
	{Group: "scheduling.k8s.io", Kind: "PriorityClass"}:      Readings,
	{Group: "node.k8s.io", Kind: "RuntimeClass"}:             Readings,
	{Group: "storage.k8s.io", Kind: "StorageClass"}:          Readings,
	{Group: "storage.k8s.io", Kind: "VolumeAttributesClass"}: Readings,
	{Group: "storage.k8s.io", Kind: "CSIDriver"}:             Readings,
	{Group: "networking.k8s.io", Kind: "IngressClass"}:       Readings,
	{Group: "networking.k8s.io", Kind: "ServiceCIDR"}:        Readings,
	{Group: "resource.k8s.io", Kind: "DeviceClass"}:          Readings,
	{Group: RBAC, Kind: "Role"}:                              Readings,
	{Group: RBAC, Kind: "ClusterRole"}:                       Readings,
	{Group: RBAC, Kind: "RoleBinding"}:                       Grants,
	{Group: RBAC, Kind: "ClusterRoleBinding"}:                Grants,
}

// PhaseOf returns the phase of an object. paramKinds are the kinds that policies refer to.
func PhaseOf(u *unstructured.Unstructured, paramKinds map[schema.GroupKind]bool) Phase {
	kind := u.GroupVersionKind().GroupKind()
	switch at, ok := phaseOf[kind]; {
	case ok:
		return at
	case kind.Group == registration.GroupName:
		if source, ok := registration.SourceOf(u); ok && source.Descriptor().Binds {
			return Bindings
		}
		return Registrations
	case paramKinds[kind]:
		return Params
	case kind == schema.GroupKind{Kind: "Service"} && fixes(u):
		return Fixed
	}
	return Others
}

// Judging returns the objects that affect admission: CRDs, objects that admission reads, and registrations with their
// params.
func Judging(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	kinds := ParamKinds(objects)
	return slices.DeleteFunc(slices.Clone(objects), func(u *unstructured.Unstructured) bool {
		at := PhaseOf(u, kinds)
		return at == Others || at == Fixed
	})
}

// fixes reports whether a service requests an address or a port.
func fixes(u *unstructured.Unstructured) bool {
	ip, _, _ := unstructured.NestedString(u.Object, "spec", "clusterIP")
	ports, _, _ := unstructured.NestedSlice(u.Object, "spec", "ports")
	return ip != "" && ip != corev1.ClusterIPNone || slices.ContainsFunc(ports, func(p any) bool {
		port, _ := p.(map[string]any)
		number, _, _ := unstructured.NestedNumberAsFloat64(port, "nodePort")
		return number != 0
	})
}

// ParamKind returns the kind of the params of a policy; ok is false for a policy without params, and for other objects.
func ParamKind(u *unstructured.Unstructured) (schema.GroupKind, bool) {
	if u.GroupVersionKind().Group != registration.GroupName {
		return schema.GroupKind{}, false
	}
	kind, _, _ := unstructured.NestedString(u.Object, "spec", "paramKind", "kind")
	version, _, _ := unstructured.NestedString(u.Object, "spec", "paramKind", "apiVersion")
	gv, err := schema.ParseGroupVersion(version)
	return schema.GroupKind{Group: gv.Group, Kind: kind}, err == nil && kind != ""
}

// ParamKinds returns the kinds of the params of the policies among the objects.
func ParamKinds(objects []*unstructured.Unstructured) map[schema.GroupKind]bool {
	kinds := map[schema.GroupKind]bool{}
	for _, u := range objects {
		if kind, ok := ParamKind(u); ok {
			kinds[kind] = true
		}
	}
	return kinds
}

// Key identifies an object independently of its version.
func Key(k *offline.Kind, namespace, name string) string {
	return k.Resource.GroupResource().String() + " " + namespace + "/" + name
}

// Lanes are the sequences of requests within a phase. The zero value is ready. It is safe for concurrent use.
type Lanes struct {
	mu sync.Mutex
	// quotas are the namespaces with a quota.
	quotas map[string]bool
}

// Of names the lane of a request. Requests for the same object, and requests that take from the same pool, share a
// lane.
func (l *Lanes) Of(k *offline.Kind, namespace, name string) string {
	switch {
	case IsService(k):
		return "services"
	case namespace != "" && l.Limited(namespace):
		return "quota " + namespace
	}
	return Key(k, namespace, name)
}

// Limit notes that a namespace has a quota, or will have one after this phase.
func (l *Lanes) Limit(namespace string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.quotas == nil {
		l.quotas = map[string]bool{}
	}
	l.quotas[namespace] = true
}

// Limited reports whether a namespace has a quota.
func (l *Lanes) Limited(namespace string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.quotas[namespace]
}

// IsService reports whether a kind is the Service of Kubernetes, whose addresses and ports come from a pool.
func IsService(k *offline.Kind) bool {
	return k.Resource.Group == "" && k.Resource.Resource == "services"
}

// Parallel is the number of concurrent requests.
const Parallel = 16

// InLanes calls do with each item: in sequence within a lane, and concurrently in different lanes.
func InLanes[T any](ctx context.Context, items []T, lane func(T) string, do func(context.Context, T) error) error {
	lanes := map[string][]T{}
	var order []string
	for _, item := range items {
		name := lane(item)
		if lanes[name] == nil {
			order = append(order, name)
		}
		lanes[name] = append(lanes[name], item)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(Parallel)
	for _, name := range order {
		group.Go(func() error {
			for _, item := range lanes[name] {
				if err := do(ctx, item); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}
