package check

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// stage is a step of the order in which objects are applied.
type stage int

const (
	// definitions are namespaces and the definitions of kinds.
	definitions stage = iota
	// readings are the objects that admission plugins read, and roles.
	readings
	// grants are bindings of roles, which may only be made of roles that exist.
	grants
	// params are the params of policies.
	params
	// registrations are policies and webhooks, and bindings are the bindings that put policies
	// into force.
	registrations
	bindings
	// fixed are services that ask for an address or a port. They come before the other services,
	// for which the server chooses free ones.
	fixed
	others
	stages
)

const (
	rbac       = "rbac.authorization.k8s.io"
	extensions = "apiextensions.k8s.io"
)

var stageOf = map[schema.GroupKind]stage{
	{Kind: "Namespace"}: definitions,
	{Group: extensions, Kind: "CustomResourceDefinition"}:    definitions,
	{Group: "apiregistration.k8s.io", Kind: "APIService"}:    definitions,
	{Kind: "ServiceAccount"}:                                 readings,
	{Kind: "LimitRange"}:                                     readings,
	{Kind: "ResourceQuota"}:                                  readings,
	{Kind: "Node"}:                                           readings,
	{Group: "scheduling.k8s.io", Kind: "PriorityClass"}:      readings,
	{Group: "node.k8s.io", Kind: "RuntimeClass"}:             readings,
	{Group: "storage.k8s.io", Kind: "StorageClass"}:          readings,
	{Group: "storage.k8s.io", Kind: "VolumeAttributesClass"}: readings,
	{Group: "storage.k8s.io", Kind: "CSIDriver"}:             readings,
	{Group: "networking.k8s.io", Kind: "IngressClass"}:       readings,
	{Group: "networking.k8s.io", Kind: "ServiceCIDR"}:        readings,
	{Group: "resource.k8s.io", Kind: "DeviceClass"}:          readings,
	{Group: rbac, Kind: "Role"}:                              readings,
	{Group: rbac, Kind: "ClusterRole"}:                       readings,
	{Group: rbac, Kind: "RoleBinding"}:                       grants,
	{Group: rbac, Kind: "ClusterRoleBinding"}:                grants,
}

// stageFor returns the stage in which an object is applied. paramKinds are the kinds that
// policies refer to.
func stageFor(u *unstructured.Unstructured, paramKinds map[schema.GroupKind]bool) stage {
	kind := u.GroupVersionKind().GroupKind()
	switch at, ok := stageOf[kind]; {
	case ok:
		return at
	case kind.Group == registration.GroupName:
		i := slices.IndexFunc(registration.Sources(), func(d registration.Descriptor) bool { return d.Kind == kind.Kind })
		if i >= 0 && registration.Sources()[i].Binds {
			return bindings
		}
		return registrations
	case paramKinds[kind]:
		return params
	case kind == schema.GroupKind{Kind: "Service"} && fixes(u):
		return fixed
	}
	return others
}

// Judging returns the objects by which requests are judged: definitions, objects that admission
// reads, and registrations with their params.
func Judging(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	kinds := map[schema.GroupKind]bool{}
	for _, u := range objects {
		if kind, ok := ParamKind(u); ok {
			kinds[kind] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(objects), func(u *unstructured.Unstructured) bool {
		at := stageFor(u, kinds)
		return at == others || at == fixed
	})
}

// fixes reports whether a service asks for an address or a port.
func fixes(u *unstructured.Unstructured) bool {
	ip, _, _ := unstructured.NestedString(u.Object, "spec", "clusterIP")
	ports, _, _ := unstructured.NestedSlice(u.Object, "spec", "ports")
	return ip != "" && ip != corev1.ClusterIPNone || slices.ContainsFunc(ports, func(p any) bool {
		port, _ := p.(map[string]any)
		return port["nodePort"] != nil
	})
}

// ParamKind returns the kind of the params of a policy; ok is false for an object that is none, or has
// no params.
func ParamKind(u *unstructured.Unstructured) (schema.GroupKind, bool) {
	if u.GroupVersionKind().Group != registration.GroupName {
		return schema.GroupKind{}, false
	}
	kind, _, _ := unstructured.NestedString(u.Object, "spec", "paramKind", "kind")
	version, _, _ := unstructured.NestedString(u.Object, "spec", "paramKind", "apiVersion")
	gv, err := schema.ParseGroupVersion(version)
	return schema.GroupKind{Group: gv.Group, Kind: kind}, err == nil && kind != ""
}

// lane names the requests of a stage that follow one another: those about the same object,
// those that take from the same pool. Requests of different lanes are concurrent.
func (t *task) lane(quotas map[string]bool) string {
	switch {
	case t.kind.Resource.Group == "" && t.kind.Resource.Resource == "services":
		return "services"
	case t.namespace != "" && quotas[t.namespace]:
		return "quota " + t.namespace
	}
	return t.key()
}

// key names the object, in whatever version it is written.
func (t *task) key() string {
	return t.kind.Resource.GroupResource().String() + " " + t.namespace + "/" + t.name
}
