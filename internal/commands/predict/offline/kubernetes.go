package offline

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/catalog"
)

// always lists the groups that kube-apiserver enables separately. It serves them in v1.
var always = []string{"apiextensions.k8s.io", "apiregistration.k8s.io"}

// InKubernetes reports whether a kube-apiserver of the same release serves the kind by default, or the kind is a custom
// one. Gatehouse serves more: versions that Kubernetes has removed, and kinds of its own.
func (k *Kind) InKubernetes() bool {
	group := k.Resource.Group
	if group == registration.OwnGroup {
		return false
	}
	if slices.Contains(always, group) {
		return k.Resource.Version == "v1"
	}
	return !catalog.Scheme.IsGroupRegistered(group) || catalog.ServedByDefault(k.Resource.GroupVersion())
}

// Explanations is the resource that every Gatehouse server has, and no other server.
const Explanations = "admissionexplanations"

// OfGatehouse reports whether the kinds come from a Gatehouse server.
func (k *Kinds) OfGatehouse() bool {
	_, ok := k.Served(registration.OwnGroup, Explanations)
	return ok
}

// Hardened returns a note about registrations that a kube-apiserver enforces although an annotation makes Gatehouse
// only warn or audit; empty for none.
func Hardened(objects []runtime.Object) string {
	var names []string
	for _, obj := range objects {
		m, err := meta.Accessor(obj)
		if err != nil {
			continue
		}
		mode, ok := m.GetAnnotations()[registration.EnforcementAnnotation]
		if _, known := registration.SourceOf(obj); ok && known && registration.Softens(mode) {
			names = append(names, fmt.Sprintf("%s %s (%s)", kindOf(obj), m.GetName(), mode))
		}
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	if n := len(names) - namedSoft; n > 0 {
		names = append(names[:namedSoft], fmt.Sprintf("%d more", n))
	}
	return "a kube-apiserver ignores the annotation " + registration.EnforcementAnnotation + ", so these reject and change requests: " + strings.Join(names, ", ") + "; files for a Gatehouse server need --for gatehouse"
}

// namedSoft bounds the registrations named in a note.
const namedSoft = 5

// OnlyHere reports whether the kind belongs to Gatehouse alone: no release of Kubernetes serves it any more or ever
// did.
func (k *Kind) OnlyHere() bool {
	own := []schema.GroupKind{
		{Group: registration.GroupName, Kind: registration.InitializerKind}, {Group: registration.GroupName, Kind: registration.ExternalKind},
	}
	return k.Resource.Group == registration.OwnGroup || slices.Contains(own, k.Kind.GroupKind())
}

// Elsewhere returns the groups and versions in which kinds of a name are served, by Kubernetes of this release or as
// custom resources, in the order of discovery.
func (k *Kinds) Elsewhere(kind string) []schema.GroupVersion {
	var list []schema.GroupVersion
	for _, known := range k.list {
		if gv := known.Kind.GroupVersion(); known.Kind.Kind == kind && known.InKubernetes() && gv == known.Resource.GroupVersion() && !slices.Contains(list, gv) {
			list = append(list, gv)
		}
	}
	return list
}
