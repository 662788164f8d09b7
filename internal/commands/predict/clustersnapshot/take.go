package clustersnapshot

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/crdschema"
	"github.com/gatehouse-dev/gatehouse/internal/kit/emulation"
)

// needed lists the resources that affect admission, in addition to registrations and the params of policies.
var needed = []schema.GroupResource{
	{Resource: "namespaces"},
	crds,
	{Resource: "resourcequotas"},
	{Resource: "limitranges"},
	{Resource: "serviceaccounts"},
	{Group: "scheduling.k8s.io", Resource: "priorityclasses"},
	{Group: "node.k8s.io", Resource: "runtimeclasses"},
	{Group: "storage.k8s.io", Resource: "storageclasses"},
	{Group: "storage.k8s.io", Resource: "volumeattributesclasses"},
	{Group: "networking.k8s.io", Resource: "ingressclasses"},
	{Group: "resource.k8s.io", Resource: "deviceclasses"},
	{Group: "rbac.authorization.k8s.io", Resource: "clusterroles"},
	{Group: "rbac.authorization.k8s.io", Resource: "clusterrolebindings"},
	{Group: "rbac.authorization.k8s.io", Resource: "roles"},
	{Group: "rbac.authorization.k8s.io", Resource: "rolebindings"},
}

// crds is the resource of CustomResourceDefinitions.
var crds = schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}

// serviceCIDRs is the resource with the ranges of cluster IPs.
var serviceCIDRs = schema.GroupResource{Group: "networking.k8s.io", Resource: "servicecidrs"}

// Rules are the RBAC rules that Take needs, except for params of policies.
func Rules() []rbacv1.PolicyRule {
	lists := map[string][]string{}
	for _, r := range append(slices.Clone(needed), serviceCIDRs) {
		lists[r.Group] = append(lists[r.Group], r.Resource)
	}
	for _, d := range registration.Sources() {
		lists[registration.GroupName] = append(lists[registration.GroupName], d.Resource)
	}
	return append(Listing(lists), rbacv1.PolicyRule{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}})
}

// Listing returns RBAC rules that allow listing resources; lists has the resources by group.
func Listing(lists map[string][]string) (rules []rbacv1.PolicyRule) {
	for _, group := range slices.Sorted(maps.Keys(lists)) {
		slices.Sort(lists[group])
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{group}, Resources: slices.Compact(lists[group]), Verbs: []string{"list"}})
	}
	return rules
}

// parallel bounds the concurrent lists.
const parallel = 8

// taker takes one snapshot.
type taker struct {
	objects dynamic.Interface
	// versions has the version in which each resource is listed, kinds the resource of each kind.
	versions map[schema.GroupResource]schema.GroupVersionResource
	kinds    map[schema.GroupVersionKind]schema.GroupVersionResource
	// namespaced has the namespaced resources. A resource that the caller may not list in all namespaces is listed in
	// each of namespaces.
	namespaced map[schema.GroupVersionResource]bool
	namespaces []string
}

// Take reads a snapshot of a cluster. A resource that the caller may not list is added to Unread, and listed in each of
// namespaces where the caller may. tried are policies and bindings that will be evaluated next to the policies of the cluster:
// the params of their bindings are read, too. The error reports that the cluster does not respond. progress, which may
// be nil, is called with the number of kinds read and their total, never concurrently.
func Take(ctx context.Context, config *rest.Config, namespaces []string, tried []*unstructured.Unstructured, progress func(done, of int)) (*Cluster, error) {
	discover, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	t := &taker{
		versions: map[schema.GroupResource]schema.GroupVersionResource{}, kinds: map[schema.GroupVersionKind]schema.GroupVersionResource{},
		namespaced: map[schema.GroupVersionResource]bool{}, namespaces: namespaces,
	}
	if t.objects, err = dynamic.NewForConfig(config); err != nil {
		return nil, err
	}
	s := &Cluster{APIVersion: APIVersion, Kind: Kind, Items: []map[string]any{}}
	version, err := discover.ServerVersion()
	if err != nil {
		return nil, fmt.Errorf("asking the cluster for its version: %w", err)
	}
	s.Cluster.KubernetesVersion = version.GitVersion
	if as := emulation.VersionOf(version); as != version.GitVersion {
		s.Cluster.JudgesAs = as
	}
	s.Cluster.FeatureGates = gates(ctx, discover.RESTClient())
	_, lists, err := discover.ServerGroupsAndResources()
	if len(lists) == 0 && err != nil {
		return nil, fmt.Errorf("discovery: %w", err)
	}
	if err != nil {
		s.Unread = append(s.Unread, Unread{Resource: "discovery", Reason: oneLine(err)})
	}
	t.discovered(lists, s)

	resources := slices.Clone(needed)
	for _, d := range registration.Sources() {
		resources = append(resources, schema.GroupResource{Group: registration.GroupName, Resource: d.Resource})
	}
	found, unread, err := t.list(ctx, append(resources, serviceCIDRs), progress)
	if err != nil {
		return nil, err
	}
	s.Unread = append(s.Unread, unread...)
	for _, u := range found {
		if u.GetKind() == "ServiceCIDR" {
			if s.Cluster.ServiceRange == "" || u.GetName() == "kubernetes" {
				s.Cluster.ServiceRange = firstRange(u)
			}
			continue
		}
		s.Items = append(s.Items, u.Object)
	}
	if slices.ContainsFunc(s.Unread, func(u Unread) bool { return u.Resource == crds.String() }) {
		for _, u := range t.published(discover, lists) {
			s.Items = append(s.Items, u.Object)
		}
	}
	params, unread, err := t.paramsOf(ctx, found, tried)
	if err != nil {
		return nil, err
	}
	s.Unread = append(s.Unread, unread...)
	for _, u := range params {
		s.Items = append(s.Items, u.Object)
	}
	s.tidy()
	return s, nil
}

// discovered notes the kinds and resources of the cluster.
func (t *taker) discovered(lists []*metav1.APIResourceList, s *Cluster) {
	for _, l := range lists {
		gv, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil {
			continue
		}
		served := Served{APIVersion: l.GroupVersion}
		for i := range l.APIResources {
			r := &l.APIResources[i]
			if strings.Contains(r.Name, "/") {
				continue
			}
			served.Kinds = append(served.Kinds, r.Kind)
			gvr := gv.WithResource(r.Name)
			t.kinds[gv.WithKind(r.Kind)], t.namespaced[gvr] = gvr, r.Namespaced
			// v1 is preferred, then the version that the cluster lists first.
			if _, ok := t.versions[gvr.GroupResource()]; !ok || gvr.Version == "v1" {
				t.versions[gvr.GroupResource()] = gvr
			}
		}
		slices.Sort(served.Kinds)
		served.Kinds = slices.Compact(served.Kinds)
		if len(served.Kinds) > 0 {
			s.Served = append(s.Served, served)
		}
	}
}

// list lists resources, as far as the cluster serves them and the caller may list them.
func (t *taker) list(ctx context.Context, resources []schema.GroupResource, progress func(done, of int)) (found []*unstructured.Unstructured, unread []Unread, err error) {
	lists, refusals := make([][]*unstructured.Unstructured, len(resources)), make([]*Unread, len(resources))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	var mu sync.Mutex
	done := 0
	for i, resource := range resources {
		gvr, ok := t.versions[resource]
		if !ok {
			continue
		}
		group.Go(func() error {
			var err error
			lists[i], err = All(ctx, t.objects.Resource(gvr), metav1.ListOptions{})
			if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
				refusals[i] = &Unread{Resource: resource.String(), Reason: oneLine(err)}
				lists[i], refusals[i].Namespaces, err = t.byNamespace(ctx, gvr)
			}
			if err != nil {
				return fmt.Errorf("listing %s: %w", resource, err)
			}
			if progress != nil {
				mu.Lock()
				defer mu.Unlock()
				done++
				progress(done, len(resources))
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, nil, err
	}
	for i := range resources {
		found = append(found, lists[i]...)
		if refusals[i] != nil {
			unread = append(unread, *refusals[i])
		}
	}
	return found, unread, nil
}

// byNamespace reads a resource in each of the namespaces where the caller may, and returns these namespaces, too.
func (t *taker) byNamespace(ctx context.Context, gvr schema.GroupVersionResource) (found []*unstructured.Unstructured, in []string, err error) {
	itself := gvr.GroupResource() == schema.GroupResource{Resource: "namespaces"}
	if !itself && !t.namespaced[gvr] {
		return nil, nil, nil
	}
	for _, namespace := range t.namespaces {
		var list []*unstructured.Unstructured
		if itself {
			var u *unstructured.Unstructured
			if u, err = t.objects.Resource(gvr).Get(ctx, namespace, metav1.GetOptions{}); err == nil {
				list = append(list, u)
			} else if apierrors.IsNotFound(err) {
				// A missing namespace is a valid result.
				err = nil
			}
		} else {
			list, err = All(ctx, t.objects.Resource(gvr).Namespace(namespace), metav1.ListOptions{})
		}
		switch {
		case err == nil:
			found, in = append(found, list...), append(in, namespace)
		case !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) && !apierrors.IsMethodNotSupported(err):
			return nil, nil, err
		}
	}
	return found, in, nil
}

// All lists all objects of a resource in pages, or in one request if a continue token expires.
func All(ctx context.Context, objects dynamic.ResourceInterface, options metav1.ListOptions) (found []*unstructured.Unstructured, err error) {
	page := func(o metav1.ListOptions) (runtime.Object, error) { return objects.List(ctx, o) }
	list, _, err := pager.New(pager.SimplePageFunc(page)).List(ctx, options)
	if err != nil {
		return nil, err
	}
	err = meta.EachListItem(list, func(object runtime.Object) error {
		found = append(found, object.(*unstructured.Unstructured))
		return nil
	})
	return found, err
}

// paramsOf reads the params of the policies of the cluster, and of policies that are tried. A tried policy may have the
// name of a policy of the cluster.
func (t *taker) paramsOf(ctx context.Context, cluster, tried []*unstructured.Unstructured) (found []*unstructured.Unstructured, unread []Unread, err error) {
	if found, unread, err = t.params(ctx, cluster); err != nil || len(tried) == 0 {
		return found, unread, err
	}
	more, also, err := t.params(ctx, slices.Concat(cluster, found, tried))
	for _, u := range also {
		if !slices.ContainsFunc(unread, func(o Unread) bool { return o.Resource == u.Resource }) {
			unread = append(unread, u)
		}
	}
	return append(found, more...), unread, err
}

// params reads the params of the policies among the objects, following the bindings among them.
func (t *taker) params(ctx context.Context, objects []*unstructured.Unstructured) (found []*unstructured.Unstructured, unread []Unread, err error) {
	kinds := map[string]schema.GroupVersionKind{}
	for _, u := range objects {
		kind, _, _ := unstructured.NestedString(u.Object, "spec", "paramKind", "kind")
		version, _, _ := unstructured.NestedString(u.Object, "spec", "paramKind", "apiVersion")
		if gv, err := schema.ParseGroupVersion(version); kind != "" && err == nil && u.GroupVersionKind().Group == registration.GroupName {
			kinds[u.GetKind()+"Binding "+u.GetName()] = gv.WithKind(kind)
		}
	}
	have := map[string]bool{}
	for _, u := range objects {
		have[Key(u)] = true
	}
	refused := map[string]bool{}
	for _, b := range objects {
		policy, _, _ := unstructured.NestedString(b.Object, "spec", "policyName")
		ref, _, _ := unstructured.NestedMap(b.Object, "spec", "paramRef")
		kind, ok := kinds[b.GetKind()+" "+policy]
		if !ok || ref == nil {
			continue
		}
		gvr, ok := t.kinds[kind]
		if !ok {
			continue
		}
		if gvr.Group == "" && gvr.Resource == "secrets" {
			if !refused[gvr.Resource] {
				unread = append(unread, Unread{Resource: "secrets", Reason: "secrets are never read, and are params of " + b.GetKind() + " " + b.GetName()})
			}
			refused[gvr.Resource] = true
			continue
		}
		list, err := t.param(ctx, gvr, ref)
		if apierrors.IsForbidden(err) {
			if !refused[gvr.GroupResource().String()] {
				unread = append(unread, Unread{Resource: gvr.GroupResource().String(), Reason: oneLine(err)})
			}
			refused[gvr.GroupResource().String()] = true
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("reading the params of %s %s: %w", b.GetKind(), b.GetName(), err)
		}
		for _, u := range list {
			if !have[Key(u)] {
				have[Key(u)] = true
				found = append(found, u)
			}
		}
	}
	return found, unread, nil
}

// param reads the objects to which a paramRef refers, in all namespaces if it names none.
func (t *taker) param(ctx context.Context, gvr schema.GroupVersionResource, ref map[string]any) ([]*unstructured.Unstructured, error) {
	namespace, _ := ref["namespace"].(string)
	o := metav1.ListOptions{}
	if name, _ := ref["name"].(string); name != "" {
		o.FieldSelector = "metadata.name=" + name
	}
	return All(ctx, t.objects.Resource(gvr).Namespace(namespace), o)
}

// published returns CRDs made from the OpenAPI of the cluster, which every user may read: one for each kind whose
// schema it has.
func (t *taker) published(discover discovery.DiscoveryInterface, lists []*metav1.APIResourceList) (found []*unstructured.Unstructured) {
	paths, err := discover.OpenAPIV3().Paths()
	if err != nil {
		return nil
	}
	kinds, order := map[schema.GroupKind]*crdschema.Kind{}, []schema.GroupKind(nil)
	for _, l := range lists {
		gv, err := schema.ParseGroupVersion(l.GroupVersion)
		at := paths["apis/"+l.GroupVersion]
		if err != nil || at == nil || scheme.Scheme.IsGroupRegistered(gv.Group) {
			continue
		}
		document, err := at.Schema(runtime.ContentTypeJSON)
		if err != nil {
			continue
		}
		schemas, err := crdschema.OpenAPI(document)
		if err != nil {
			continue
		}
		for i := range l.APIResources {
			r := &l.APIResources[i]
			of := schemas[gv.WithKind(r.Kind)]
			if of == nil || strings.Contains(r.Name, "/") {
				continue
			}
			id := schema.GroupKind{Group: gv.Group, Kind: r.Kind}
			if kinds[id] == nil {
				kinds[id] = &crdschema.Kind{Group: gv.Group, Kind: r.Kind, Plural: r.Name, Singular: r.SingularName, ShortNames: r.ShortNames, Namespaced: r.Namespaced}
				order = append(order, id)
			}
			status := slices.ContainsFunc(l.APIResources, func(sub metav1.APIResource) bool { return sub.Name == r.Name+"/status" })
			kinds[id].Versions = append(kinds[id].Versions, crdschema.Version{Name: gv.Version, Schema: of, Status: status})
		}
	}
	for _, id := range order {
		found = append(found, kinds[id].Definition())
	}
	return found
}

// Key identifies an object independently of its version.
func Key(u *unstructured.Unstructured) string {
	return strings.Join([]string{u.GroupVersionKind().Group, u.GetKind(), u.GetNamespace(), u.GetName()}, " ")
}

func firstRange(u *unstructured.Unstructured) string {
	ranges, _, _ := unstructured.NestedStringSlice(u.Object, "spec", "cidrs")
	if len(ranges) == 0 {
		return ""
	}
	return ranges[0]
}

// volatile lists the fields of metadata that do not affect admission.
var volatile = []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink", "ownerReferences"}

// tidy removes fields that do not affect admission from the objects, and sorts.
func (s *Cluster) tidy() {
	for _, item := range s.Items {
		u := unstructured.Unstructured{Object: item}
		for _, field := range volatile {
			unstructured.RemoveNestedField(item, "metadata", field)
		}
		unstructured.RemoveNestedField(item, "metadata", "annotations", corev1.LastAppliedConfigAnnotation)
		if len(u.GetAnnotations()) == 0 {
			unstructured.RemoveNestedField(item, "metadata", "annotations")
		}
		switch u.GetKind() {
		case "ResourceQuota":
			// Admission reads the used amounts.
			status, _, _ := unstructured.NestedMap(item, "status")
			item["status"] = map[string]any{"used": status["used"]}
		case "ServiceAccount":
			delete(item, "secrets")
		case "Namespace":
			if phase, _, _ := unstructured.NestedString(item, "status", "phase"); phase == string(corev1.NamespaceTerminating) {
				item["status"] = map[string]any{"phase": phase}
				continue
			}
			delete(item, "status")
		default:
			delete(item, "status")
		}
	}
	slices.SortFunc(s.Items, func(a, b map[string]any) int {
		return cmp.Compare(Key(&unstructured.Unstructured{Object: a}), Key(&unstructured.Unstructured{Object: b}))
	})
	slices.SortFunc(s.Served, func(a, b Served) int { return cmp.Compare(a.APIVersion, b.APIVersion) })
	slices.SortFunc(s.Unread, func(a, b Unread) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Reason, b.Reason))
	})
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
