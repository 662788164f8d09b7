package offline

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/internal/kit/emulation"
	"github.com/gatehouse-dev/gatehouse/internal/kit/nearest"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/catalog"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/customresources"
)

// builtin is the discovery of a server without custom resources: a line for each group and
// version, and below it a line for each resource.
//
//go:embed kinds.txt
var builtin string

// Kind is a kind of objects, and the resource under which they are served.
type Kind struct {
	Kind       schema.GroupVersionKind
	Resource   schema.GroupVersionResource
	Namespaced bool
	// Guessed reports whether the plural and the scope are a guess.
	Guessed bool
	// singular and short are other names of the resource.
	singular string
	short    []string
	// subresources are the kinds of the objects that clients send to subresources, in order.
	subresources []subresource
}

type subresource struct {
	name string
	kind schema.GroupVersionKind
}

// Kinds are the kinds of a cluster, in the order of discovery.
type Kinds struct {
	list        []*Kind
	equivalents runtime.EquivalentResourceRegistry
	// defined has the contents of CRDs, as *defined by schema.GroupKind.
	defined sync.Map
	// incomplete is the reason why some kinds are not known; empty if all are.
	incomplete string
}

// NewKinds returns the kinds that discovery lists.
func NewKinds(lists []*metav1.APIResourceList) (*Kinds, error) {
	k := &Kinds{equivalents: runtime.NewEquivalentResourceRegistryWithIdentity(family)}
	for _, l := range lists {
		gv, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil {
			return nil, fmt.Errorf("discovery: %w", err)
		}
		for i := range l.APIResources {
			k.add(gv, &l.APIResources[i])
		}
	}
	return k, nil
}

// family returns a common name for a resource and its equivalents in other groups, which are stored as the same
// objects.
func family(r schema.GroupResource) string {
	switch {
	case r.Group == "extensions" && slices.Contains([]string{"daemonsets", "deployments", "replicasets"}, r.Resource):
		r.Group = "apps"
	case r.Group == "extensions":
		r.Group = "networking.k8s.io"
	case r.Group == "events.k8s.io":
		r.Group = ""
	}
	return r.String()
}

// Builtin returns the server's built-in kinds in the release that this process emulates.
func Builtin() *Kinds {
	var lists []*metav1.APIResourceList
	for line := range strings.Lines(builtin) {
		words := strings.Fields(line)
		if len(words) == 1 {
			lists = append(lists, &metav1.APIResourceList{GroupVersion: words[0]})
			continue
		}
		r := metav1.APIResource{Name: words[0], Kind: words[1], Namespaced: words[2] == "namespaced"}
		if len(words) > 3 {
			gv, _ := schema.ParseGroupVersion(words[3])
			r.Group, r.Version = gv.Group, gv.Version
		}
		last := lists[len(lists)-1]
		if gv, _ := schema.ParseGroupVersion(last.GroupVersion); !kindExists(gv.WithKind(r.Kind)) {
			continue
		}
		last.APIResources = append(last.APIResources, r)
	}
	k, err := NewKinds(lists)
	if err != nil {
		panic("kinds.txt: " + err.Error())
	}
	return k
}

// kindExists reports whether a kind exists in the release that this process emulates.
func kindExists(kind schema.GroupVersionKind) bool {
	if !emulation.Emulates() {
		return true
	}
	obj, err := catalog.Scheme.New(kind)
	if err != nil {
		return true
	}
	introduced := lifeOf(obj, schema.GroupVersionResource{}, kind.Kind).Introduced
	return introduced == nil || !introduced.GreaterThan(emulation.Effective().EmulationVersion())
}

func (k *Kinds) add(gv schema.GroupVersion, r *metav1.APIResource) {
	kind := gv.WithKind(r.Kind)
	if r.Version != "" {
		kind = schema.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}
	}
	name, sub, _ := strings.Cut(r.Name, "/")
	resource := gv.WithResource(name)
	k.equivalents.RegisterKindFor(resource, sub, kind)
	if sub == "" {
		k.list = append(k.list, &Kind{Kind: kind, Resource: resource, Namespaced: r.Namespaced, singular: r.SingularName, short: r.ShortNames})
		return
	}
	i := slices.IndexFunc(k.list, func(o *Kind) bool { return o.Resource == resource })
	if i < 0 {
		return
	}
	k.list[i].subresources = append(k.list[i].subresources, subresource{sub, kind})
}

// Define adds the kinds of a CustomResourceDefinition (v1), in all its versions.
func (k *Kinds) Define(definition *unstructured.Unstructured) error {
	at := func(fields ...string) string {
		s, _, _ := unstructured.NestedString(definition.Object, append([]string{"spec"}, fields...)...)
		return s
	}
	group, kind, plural := at("group"), at("names", "kind"), at("names", "plural")
	if group == "" || kind == "" || plural == "" {
		return fmt.Errorf("CustomResourceDefinition %q: spec.group, spec.names.kind and spec.names.plural are needed", definition.GetName())
	}
	short, _, _ := unstructured.NestedStringSlice(definition.Object, "spec", "names", "shortNames")
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	for _, v := range versions {
		version, _ := v.(map[string]any)
		name, _ := version["name"].(string)
		if served, ok := version["served"].(bool); name == "" || ok && !served {
			continue
		}
		gv := schema.GroupVersion{Group: group, Version: name}
		k.add(gv, &metav1.APIResource{Name: plural, Kind: kind, Namespaced: at("scope") != "Cluster", SingularName: at("names", "singular"), ShortNames: short})
		subresources, _, _ := unstructured.NestedMap(version, "subresources")
		if _, ok := subresources["status"]; ok {
			k.add(gv, &metav1.APIResource{Name: plural + "/status", Kind: kind})
		}
		if _, ok := subresources["scale"]; ok {
			k.add(gv, &metav1.APIResource{Name: plural + "/scale", Group: "autoscaling", Version: "v1", Kind: "Scale"})
		}
	}
	k.defined.Store(schema.GroupKind{Group: group, Kind: kind}, definedBy(definition))
	return nil
}

// defined is the content of a CRD.
type defined struct {
	// converts reports whether versions differ only in their names.
	converts bool
	// rules is nil if the CRD cannot be read.
	rules *customresources.Rules
	// unread is the reason why the CRD is not known; empty if it is.
	unread string
}

// definedBy reads a CRD.
func definedBy(u *unstructured.Unstructured) *defined {
	strategy, _, _ := unstructured.NestedString(u.Object, "spec", "conversion", "strategy")
	d := &defined{converts: strategy == "" || strategy == "None"}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, crd); err != nil {
		d.unread = err.Error()
		return d
	}
	d.rules = customresources.NewRules(crd)
	return d
}

// definition returns the content of the CRD of a kind; nil if unknown.
func (k *Kinds) definition(kind schema.GroupKind) *defined {
	d, _ := k.defined.Load(kind)
	known, _ := d.(*defined)
	return known
}

// converts reports whether the versions of a custom resource differ only in their names.
func (k *Kinds) converts(kind schema.GroupKind) bool {
	d := k.definition(kind)
	return d != nil && d.converts
}

// Served returns the first version in which a resource is served; ok is false if it is not served.
func (k *Kinds) Served(group, resource string) (gvr schema.GroupVersionResource, ok bool) {
	for _, known := range k.list {
		if known.Resource.Group == group && known.Resource.Resource == resource {
			return known.Resource, true
		}
	}
	return gvr, false
}

// Matching returns the kinds of the resources that a rule matches, in the order of discovery. "*" matches everything.
func (k *Kinds) Matching(groups, versions, resources []string) (list []*Kind) {
	matches := func(names []string, name string) bool {
		return slices.Contains(names, name) || slices.Contains(names, "*")
	}
	for _, known := range k.list {
		r := known.Resource
		if matches(groups, r.Group) && matches(versions, r.Version) && matches(resources, r.Resource) {
			list = append(list, known)
		}
	}
	return list
}

// Of returns the Kind of a kind, or a guess if it is not known.
func (k *Kinds) Of(kind schema.GroupVersionKind) *Kind {
	for _, known := range k.list {
		if known.Kind == kind {
			return known
		}
	}
	resource, _ := meta.UnsafeGuessKindToResource(kind)
	return &Kind{Kind: kind, Resource: resource, Namespaced: true, Guessed: true}
}

// Meant returns a question for the kind that a user probably meant by a kind that is not served, such as
// " (did you mean Secret?)"; empty if no kind of its version, or of another version of a known group, is near.
func (k *Kinds) Meant(kind schema.GroupVersionKind) string {
	var names, others []string
	group := false
	for _, known := range k.list {
		if name := known.Kind.Kind; known.Kind.GroupVersion() == kind.GroupVersion() {
			names = append(names, name)
		} else if known.Kind.Group == kind.Group || strings.EqualFold(name, kind.Kind) {
			others = append(others, name+" of "+known.Kind.GroupVersion().String())
		}
		group = group || known.Kind.Group == kind.Group
	}
	if !group {
		return ""
	}
	for _, name := range slices.Concat(names, others) {
		if first, _, _ := strings.Cut(name, " "); strings.EqualFold(first, kind.Kind) || strings.EqualFold(first+"s", kind.Kind) {
			return fmt.Sprintf(" (did you mean %s?)", name)
		}
	}
	return nearest.Suggestion("", kind.Kind, names)
}

// OperationOf returns the usual operation of requests for a subresource (S24.22).
func OperationOf(subresource string) string {
	switch subresource {
	case "binding", "eviction", "token":
		return "CREATE"
	case "attach", "exec", "portforward", "proxy":
		return "CONNECT"
	}
	return "UPDATE"
}

// Parent returns the kind that has a subresource which takes objects of the kind sent. The error reports that there is
// none, or that there are several.
func (k *Kinds) Parent(sub string, sent schema.GroupVersionKind) (*Kind, error) {
	var found []*Kind
	for _, known := range k.list {
		if slices.Contains(known.subresources, subresource{sub, sent}) {
			found = append(found, known)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return nil, fmt.Errorf("no known kind has a subresource %s that takes a %s of %s", sub, sent.Kind, sent.GroupVersion())
	}
	return nil, fmt.Errorf("several kinds have a subresource %s that takes a %s: name the object, as KIND/NAME", sub, sent.Kind)
}

// At returns the kind that a resource serves; nil if there is none.
func (k *Kinds) At(resource schema.GroupVersionResource) *Kind {
	i := slices.IndexFunc(k.list, func(o *Kind) bool { return o.Resource == resource })
	if i < 0 {
		return nil
	}
	return k.list[i]
}

// Named returns the kind for a name as kubectl accepts it: pod, pods, po, pods.v1., or deployment.apps.
func (k *Kinds) Named(given string) (*Kind, error) {
	name, group, qualified := strings.Cut(strings.ToLower(given), ".")
	version := ""
	for _, known := range k.list {
		kind := known.Kind
		if name != known.Resource.Resource && name != strings.ToLower(kind.Kind) && name != known.singular && !slices.Contains(known.short, name) {
			continue
		}
		version = kind.Version
		if !qualified || group == kind.Group || group == version+"."+kind.Group {
			return known, nil
		}
	}
	return nil, fmt.Errorf("the kind %q is not known", given)
}

// Takes returns the kind of the objects that a subresource takes, the zero kind if the subresource is not known.
func (k *Kind) Takes(sub string) schema.GroupVersionKind {
	if sub == "" {
		return k.Kind
	}
	for _, s := range k.subresources {
		if s.name == sub {
			return s.kind
		}
	}
	return schema.GroupVersionKind{}
}
