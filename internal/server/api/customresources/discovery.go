package customresources

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/endpoints/discovery"
)

// Version is a group version of CRDs, as discovery shows it.
type Version struct {
	schema.GroupVersion
	// Resources are the resources in order of name, each followed by its
	// subresources: status, then scale.
	Resources []metav1.APIResource
	// Tag changes whenever the OpenAPI document of the version may have changed. CRDs without a
	// part in the document do not change it.
	Tag string
}

// Verbs, in the order upstream has them in discovery.
var (
	allVerbs         = metav1.Verbs{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"}
	terminatingVerbs = metav1.Verbs{"delete", "deletecollection", "get", "list", "watch"}
	subresourceVerbs = metav1.Verbs{"get", "patch", "update"}
)

// Versions lists the group versions for discovery: the served versions of established CRDs, in
// order of group, and in a group the preferred version first. The caller must not change the
// result.
func (s *Server) Versions() []Version {
	byGV := map[schema.GroupVersion]*Version{}
	// builtFrom names the CRDs that the document of each version is built from.
	builtFrom := map[schema.GroupVersion][]string{}
	for _, e := range *s.snapshot.Load() {
		if !established(e.crd) {
			continue
		}
		for i := range e.crd.Spec.Versions {
			v := &e.crd.Spec.Versions[i]
			gv := e.groupVersion(v.Name)
			if !e.shown[place{version: v.Name}] {
				continue
			}
			if byGV[gv] == nil {
				byGV[gv] = &Version{GroupVersion: gv}
			}
			for _, subresource := range []string{"", "status", "scale"} {
				if e.shown[place{v.Name, subresource}] {
					byGV[gv].Resources = append(byGV[gv].Resources, discovered(e.crd, subresource))
				}
			}
			builtFrom[gv] = append(builtFrom[gv], string(e.definition.crd.UID)+"/"+e.definition.crd.ResourceVersion)
		}
	}
	list := make([]Version, 0, len(byGV))
	for _, v := range byGV {
		slices.SortStableFunc(v.Resources, func(a, b metav1.APIResource) int { return cmp.Compare(resourceOf(a.Name), resourceOf(b.Name)) })
		slices.Sort(builtFrom[v.GroupVersion])
		v.Tag = strings.Join(builtFrom[v.GroupVersion], ",")
		list = append(list, *v)
	}
	slices.SortFunc(list, func(a, b Version) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), version.CompareKubeAwareVersionStrings(b.Version, a.Version))
	})
	return list
}

// resourceOf returns the resource of "widgets/status", or of "widgets".
func resourceOf(name string) string {
	resource, _, _ := strings.Cut(name, "/")
	return resource
}

// discovered is a resource or subresource as discovery shows it.
func discovered(crd *apiextensionsv1.CustomResourceDefinition, subresource string) metav1.APIResource {
	names := crd.Status.AcceptedNames
	r := metav1.APIResource{
		Name:       names.Plural,
		Namespaced: crd.Spec.Scope == apiextensionsv1.NamespaceScoped,
		Kind:       names.Kind,
	}
	switch subresource {
	case "":
		r.SingularName, r.ShortNames, r.Categories = names.Singular, names.ShortNames, names.Categories
		r.Verbs = allVerbs
		if terminating(crd) {
			r.Verbs = terminatingVerbs
		}
		if stored, err := apihelpers.GetCRDStorageVersion(crd); err == nil {
			r.StorageVersionHash = discovery.StorageVersionHash(crd.Spec.Group, stored, names.Kind)
		}
	case "scale":
		r.Name += "/scale"
		r.Group, r.Version, r.Kind = scaleKind.Group, scaleKind.Version, scaleKind.Kind
		r.Verbs = subresourceVerbs
	default:
		r.Name += "/" + subresource
		r.Verbs = subresourceVerbs
	}
	return r
}

func terminating(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return crd.DeletionTimestamp != nil || apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Terminating)
}
