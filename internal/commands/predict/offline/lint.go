package offline

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/clustersnapshot"
	"github.com/gatehouse-dev/gatehouse/internal/kit/emulation"
	"github.com/gatehouse-dev/gatehouse/internal/readers/lint"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
)

// survey collects the objects that the rules of package lint read.
type survey struct {
	world *lint.Input
	// roles are the rules of roles, by kind, namespace and name.
	roles    map[lint.Object][]rbacv1.PolicyRule
	bindings []binding
	// least is the minimum number of replicas that autoscalers leave to workloads.
	least map[lint.Object]int
	// definitions are the CRDs, by name.
	definitions map[string]*unstructured.Unstructured
}

// binding gives groups a role.
type binding struct {
	object lint.Object
	role   lint.Object
	groups []string
}

// surveyed lists the kinds of objects that rules read, with the part of the world to which they belong.
var surveyed = []struct {
	schema.GroupVersionResource
	kind string
	part lint.Part
}{
	{schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "Namespace", lint.Namespaces},
	{schema.GroupVersionResource{Version: "v1", Resource: "services"}, "Service", lint.Services},
	{schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}, "EndpointSlice", lint.Endpoints},
	{schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, "Deployment", lint.Workloads},
	{schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}, "DaemonSet", lint.Workloads},
	{schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "statefulsets"}, "StatefulSet", lint.Workloads},
	{schema.GroupVersionResource{Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers"}, "HorizontalPodAutoscaler", lint.Workloads},
	{schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}, "ClusterRole", lint.Access},
	{schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"}, "Role", lint.Access},
	{schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"}, "ClusterRoleBinding", lint.Access},
	{schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"}, "RoleBinding", lint.Access},
	{schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}, "CustomResourceDefinition", lint.Definitions},
}

func newSurvey(now time.Time) *survey {
	return &survey{
		world: &lint.Input{
			Reviews: emulation.JudgesReviews(),
			Now:     now, Unseen: map[lint.Part]string{}, Hidden: map[registration.Source]string{}, Written: map[lint.Object]lint.Written{}, Patched: map[lint.Object]string{}, Several: map[schema.GroupResource]bool{}, Kept: map[lint.Kept]bool{},
			Namespaces: map[string]map[string]string{}, Services: map[types.NamespacedName]*corev1.Service{}, Ready: map[types.NamespacedName]int{}, Issued: map[types.NamespacedName][]string{},
		},
		roles: map[lint.Object][]rbacv1.PolicyRule{}, least: map[lint.Object]int{}, definitions: map[string]*unstructured.Unstructured{},
	}
}

// Lint returns the world for the lint rules, with all known objects. over, which may be nil, is a World of files whose
// objects replace objects of the same names. The error reports that the cluster does not respond.
func (w *World) Lint(ctx context.Context, now time.Time, over *World) (*lint.Input, error) {
	s := newSurvey(now)
	objects := w.Registrations.Objects
	s.world.Partial = w.files != nil
	s.world.Gatehouse = w.cluster != nil && !w.Registrations.Kubernetes
	for source, why := range w.Hidden {
		s.world.Hidden[source] = why
	}
	s.world.Params = w.Params
	custom := map[schema.GroupResource]bool{}
	if w.cluster != nil {
		if err := w.cluster.survey(ctx, s, custom); err != nil {
			return nil, err
		}
	}
	for _, obj := range objects {
		if m, err := meta.Accessor(obj); err == nil {
			s.world.Written[lint.Object{Kind: kindOf(obj), Name: m.GetName()}] = writtenOf(m)
		}
	}
	for _, f := range []*World{w, over} {
		if f == nil || f.files == nil {
			continue
		}
		s.world.Kustomized = s.world.Kustomized || f.files.kustomized
		// versions are the files of ClusterServiceVersions.
		var versions []string
		for _, d := range f.files.stored {
			u := d.Unstructured()
			if f == over {
				if err := w.Kinds.define(u); err != nil {
					return nil, fmt.Errorf("%s: %w", d.At(), err)
				}
			}
			s.add(u, custom)
			switch kind := u.GroupVersionKind().GroupKind(); {
			case kind == (schema.GroupKind{Group: "operators.coreos.com", Kind: "ClusterServiceVersion"}):
				versions = append(versions, d.File)
			case kind == certificates && f.files.set.IsBuilt(d.File):
				// A kustomization may replace the DNS names.
				s.world.Issued[types.NamespacedName{Namespace: u.GetNamespace(), Name: u.GetName()}] = []string{}
			}
			if !isSample(d.File) {
				s.world.Kept[lint.Kept{GroupKind: u.GroupVersionKind().GroupKind(), Namespace: u.GetNamespace()}] = true
			}
			s.scaled(f.files, d, u)
			if object := (lint.Object{Kind: u.GetKind(), Name: u.GetName()}); u.GroupVersionKind().GroupKind() == definitions && s.converts(object) {
				s.patched(f.files, object, d)
			}
		}
		if len(versions) > 0 {
			s.world.Managed = func(o lint.Object) bool { return f.files.bundled(o, versions) }
		}
		for object, written := range f.files.written {
			s.world.Written[object] = written
			d := f.files.Find(object.Kind, object.Name)
			s.patched(f.files, object, d)
			if by := f.files.unused[filepath.Clean(d.File)]; by != "" && (filepath.Dir(by) == filepath.Dir(d.File) || isBase(d.Unstructured())) {
				s.world.Patched[object] = filepath.ToSlash(by)
			}
		}
	}
	for _, u := range w.elsewhere {
		if s.definitions[u.GetName()] == nil {
			versions, _, _ := unstructured.NestedSlice(u.Object, "spec", "versions")
			plural, _, _ := unstructured.NestedString(u.Object, "spec", "names", "plural")
			s.definitions[u.GetName()] = u
			custom[schema.GroupResource{Group: kindDefinedBy(u).Group, Resource: plural}] = hasRules(versions)
		}
	}
	if over != nil {
		objects = slices.DeleteFunc(slices.Clone(objects), func(obj runtime.Object) bool {
			m, err := meta.Accessor(obj)
			return err == nil && over.files.Find(kindOf(obj), m.GetName()) != nil
		})
		objects = append(objects, over.Registrations.Objects...)
	}
	s.grants()
	s.injectors()
	for i := range s.world.Workloads {
		one := &s.world.Workloads[i]
		if one.Object.Kind != "DaemonSet" {
			one.Replicas = max(one.Replicas, s.least[one.Object])
		}
	}
	s.world.Resources, s.world.Equivalents = w.Kinds.resources(custom), w.Kinds.equivalents
	s.keepers()
	if w.Kinds.incomplete != "" {
		s.world.Unseen[lint.Kinds] = w.Kinds.incomplete
	}
	r := w.Registrations
	r.Objects = objects
	s.world.Snapshot = snapshot.Compile(r)
	s.world.Schemas, s.world.Minimal = s.schema, s.minimal
	if s.world.Partial {
		s.world.Apart = w.files.apart
	}
	return s.world, nil
}

// scaled notes the replicas that kustomizations give a workload of the files. Of several numbers the highest counts:
// which one is applied is unknown.
func (s *survey) scaled(f *files, written *manifests.Object, u *unstructured.Unstructured) {
	object := lint.Object{Kind: u.GetKind(), Namespace: cmp.Or(u.GetNamespace(), metav1.NamespaceDefault), Name: u.GetName()}
	for i := range f.patched {
		if p := &f.patched[i]; p.Replicas > 0 && p.Changes(written) {
			s.least[object] = max(s.least[object], int(p.Replicas))
		}
	}
}

// patched notes a kustomization's changes to an object of the files.
func (s *survey) patched(f *files, object lint.Object, written *manifests.Object) {
	for i := range f.patched {
		p := &f.patched[i]
		switch as, known := s.world.Written[object]; {
		case !p.Changes(written):
		case p.Annotations == nil:
			s.world.Patched[object] = filepath.ToSlash(p.Kustomization)
		case known:
			// Such as the annotation that makes a controller set the caBundle.
			as.Annotations = maps.Clone(as.Annotations)
			if as.Annotations == nil {
				as.Annotations = map[string]string{}
			}
			maps.Copy(as.Annotations, p.Annotations)
			s.world.Written[object] = as
		}
	}
}

// bundled reports whether a ClusterServiceVersion, given by its file, may be installed with an object: it is in the same
// folder, or a kustomization has both.
func (f *files) bundled(o lint.Object, versions []string) bool {
	d := f.Find(o.Kind, o.Name)
	return d == nil || f.set == nil || slices.ContainsFunc(versions, func(file string) bool {
		return filepath.Dir(file) == filepath.Dir(d.File) || f.set.Together(file, d.File)
	})
}

// isSample reports whether a file has examples of objects.
func isSample(file string) bool {
	return slices.ContainsFunc(strings.Split(filepath.ToSlash(file), "/"), func(name string) bool { return name == "samples" || name == "examples" })
}

// isBase reports whether a webhook configuration has a service in the namespace of the bases that kubebuilder makes: it
// is not applied as written.
func isBase(u *unstructured.Unstructured) bool {
	webhooks, _ := u.Object["webhooks"].([]any)
	return slices.ContainsFunc(webhooks, func(one any) bool {
		webhook, _ := one.(map[string]any)
		namespace, _, _ := unstructured.NestedString(webhook, "clientConfig", "service", "namespace")
		return namespace == "system"
	})
}

// converts reports whether a CRD has a conversion webhook.
func (s *survey) converts(object lint.Object) bool {
	return slices.ContainsFunc(s.world.Conversions, func(c lint.Conversion) bool { return c.Object == object })
}

// define adds the kinds of an object that is a CustomResourceDefinition which is not served yet.
func (k *Kinds) define(u *unstructured.Unstructured) error {
	if u.GroupVersionKind().GroupKind() != definitions {
		return nil
	}
	group, _, _ := unstructured.NestedString(u.Object, "spec", "group")
	plural, _, _ := unstructured.NestedString(u.Object, "spec", "names", "plural")
	if _, served := k.Served(group, plural); served {
		return nil
	}
	return k.Define(u)
}

// kindOf returns the kind of a registration object.
func kindOf(obj runtime.Object) string {
	if kind := obj.GetObjectKind().GroupVersionKind().Kind; kind != "" {
		return kind
	}
	entries, err := registration.Entries(obj)
	if err != nil || len(entries) == 0 {
		return ""
	}
	return entries[0].Source.String()
}

// About returns a function that reports whether an object is in the files of the World.
func (w *World) About() func(lint.Object) bool {
	return func(o lint.Object) bool { return w.files.document(o) != nil }
}

// apart reports whether two registrations are in different folders below a folder that was named, and no kustomization
// has both.
func (f *files) apart(a, b lint.Object) bool {
	one, other := f.Find(a.Kind, a.Name), f.Find(b.Kind, b.Name)
	if one == nil || other == nil || f.set == nil || f.set.Together(one.File, other.File) {
		return false
	}
	return slices.ContainsFunc(f.roots, func(root string) bool {
		folder, of := treeOf(root, one.File), treeOf(root, other.File)
		return folder != "" && of != "" && folder != of && folder != filepath.Base(one.File) && of != filepath.Base(other.File)
	})
}

// document returns the document of an object, nil if no file has it.
func (f *files) document(o lint.Object) *manifests.Object {
	if o.At != "" {
		if i := slices.IndexFunc(f.stored, func(d *manifests.Object) bool { return d.At() == o.At }); i >= 0 {
			return f.stored[i]
		}
		return nil
	}
	if found := f.Find(o.Kind, o.Name); found != nil && o.Namespace == "" {
		return found
	}
	for _, d := range f.stored {
		if u := d.Unstructured(); u.GetKind() == o.Kind && u.GetName() == o.Name && (u.GetNamespace() == o.Namespace || u.GetNamespace() == "" && o.Namespace == metav1.NamespaceDefault) {
			return d
		}
	}
	return nil
}

// Locate returns the position of a field of an object, or of the longest prefix of its path in the file; ok is false if
// no file has the object.
func (w *World) Locate(o lint.Object, path []any) (at Position, ok bool) {
	if w.files == nil {
		return Position{}, false
	}
	d := w.files.document(o)
	if d == nil {
		return Position{}, false
	}
	at.File = d.File
	at.Line, at.Column = d.ValueOf(path)
	return at, true
}

// Position is a position in a file. Line and Column count from 1.
type Position struct {
	File         string
	Line, Column int
}

// resources lists the kinds for rules. The keys of custom are the custom resources, and the values report whether their
// CRDs have validation rules.
func (k *Kinds) resources(custom map[schema.GroupResource]bool) []lint.Resource {
	list := make([]lint.Resource, 0, len(k.list))
	for _, one := range k.list {
		ruled, defined := custom[one.Resource.GroupResource()]
		r := lint.Resource{GroupVersionResource: one.Resource, Kind: one.Kind, Namespaced: one.Namespaced, Custom: defined, Ruled: ruled}
		for _, s := range one.subresources {
			r.Subresources = append(r.Subresources, lint.Subresource{Name: s.name, Kind: s.kind})
		}
		list = append(list, r)
	}
	return list
}

// survey reads the objects of a cluster that the caller may read.
func (c *cluster) survey(ctx context.Context, s *survey, custom map[schema.GroupResource]bool) error {
	lists := make([][]*unstructured.Unstructured, len(surveyed))
	errs := make([]error, len(surveyed))
	var group sync.WaitGroup
	for i, one := range surveyed {
		if _, served := c.kinds.Served(one.Group, one.Resource); served {
			group.Go(func() {
				lists[i], errs[i] = clustersnapshot.All(ctx, c.objects.Resource(one.GroupVersionResource), metav1.ListOptions{})
			})
		}
	}
	group.Wait()
	forbidden := map[lint.Part][]string{}
	for i, one := range surveyed {
		switch {
		case apierrors.IsForbidden(errs[i]):
			forbidden[one.part] = append(forbidden[one.part], one.Resource)
			s.world.Unseen[one.part] = "may not list " + strings.Join(forbidden[one.part], ", ")
			continue
		case errs[i] != nil:
			s.world.Unseen[one.part] = fmt.Sprintf("listing %s: %v", one.Resource, errs[i])
			continue
		}
		for _, u := range lists[i] {
			u.SetGroupVersionKind(one.GroupVersion().WithKind(one.kind))
			s.add(u, custom)
		}
	}
	if _, served := c.kinds.Served(registration.GroupName, registration.Initializing.Descriptor().Resource); served {
		c.waiting(ctx, s)
	}
	return ctx.Err()
}

// waiting finds objects that wait for initializers. It sends requests only to a server that has initializers.
func (c *cluster) waiting(ctx context.Context, s *survey) {
	var group errgroup.Group
	group.SetLimit(8)
	seen := map[schema.GroupResource]bool{}
	var mu sync.Mutex
	for _, k := range c.kinds.list {
		gvr := k.Resource
		if seen[gvr.GroupResource()] || gvr.Group == "extensions" || registration.IsVirtual(gvr.GroupResource()) {
			continue
		}
		seen[gvr.GroupResource()] = true
		group.Go(func() error {
			list, err := clustersnapshot.All(ctx, c.uninitialized.Resource(gvr), metav1.ListOptions{})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case apierrors.IsForbidden(err):
				s.world.Unseen[lint.Waiting] = "may not list all kinds of objects"
			case err != nil:
				// A resource that cannot be listed counts as empty.
			default:
				for _, u := range list {
					s.waits(u, lint.Object{Kind: k.Kind.Kind, Namespace: u.GetNamespace(), Name: u.GetName()})
				}
			}
			return nil
		})
	}
	_ = group.Wait()
}

// uninitialized makes requests include objects that wait for initializers.
type uninitialized struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (u uninitialized) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	q := r.URL.Query()
	q.Set("includeUninitialized", "true")
	r.URL.RawQuery = q.Encode()
	return u.RoundTripper.RoundTrip(r)
}

// add adds an object if a rule reads its kind. It replaces an object of the same name. It omits objects that cannot be
// read in the version that rules know.
func (s *survey) add(u *unstructured.Unstructured, custom map[schema.GroupResource]bool) {
	w := s.world
	namespace := cmp.Or(u.GetNamespace(), metav1.NamespaceDefault)
	name := types.NamespacedName{Namespace: namespace, Name: u.GetName()}
	object := lint.Object{Kind: u.GetKind(), Namespace: namespace, Name: u.GetName()}
	if w.Partial {
		// For a cluster, waiting finds these objects.
		s.waits(u, object)
	}
	switch u.GroupVersionKind().GroupKind() {
	case schema.GroupKind{Kind: "Namespace"}:
		// Every namespace has a label with its name.
		labels := map[string]string{corev1.LabelMetadataName: u.GetName()}
		for key, value := range u.GetLabels() {
			labels[key] = value
		}
		w.Namespaces[u.GetName()] = labels
	case schema.GroupKind{Kind: "Service"}:
		service := &corev1.Service{}
		if into(u, service) {
			name.Namespace = u.GetNamespace()
			if other := w.Services[name]; other != nil && w.Partial {
				// Several files have it: which one is applied is unknown.
				for _, port := range other.Spec.Ports {
					if !slices.ContainsFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == port.Port }) {
						service.Spec.Ports = append(service.Spec.Ports, port)
					}
				}
			}
			w.Services[name] = service
		}
	case schema.GroupKind{Group: "discovery.k8s.io", Kind: "EndpointSlice"}:
		s.endpoints(u, namespace)
	case schema.GroupKind{Group: "apps", Kind: "Deployment"}, schema.GroupKind{Group: "apps", Kind: "StatefulSet"}, schema.GroupKind{Group: "apps", Kind: "DaemonSet"}:
		s.workload(u, object)
	case schema.GroupKind{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}:
		kind, _, _ := unstructured.NestedString(u.Object, "spec", "scaleTargetRef", "kind")
		target, _, _ := unstructured.NestedString(u.Object, "spec", "scaleTargetRef", "name")
		least, _, _ := unstructured.NestedInt64(u.Object, "spec", "minReplicas")
		s.least[lint.Object{Kind: kind, Namespace: namespace, Name: target}] = int(least)
	case definitions:
		s.definition(u, custom)
	case certificates:
		names, _, _ := unstructured.NestedStringSlice(u.Object, "spec", "dnsNames")
		w.Issued[types.NamespacedName{Namespace: u.GetNamespace(), Name: u.GetName()}] = append([]string{}, names...)
	case schema.GroupKind{Kind: "Secret"}:
		w.Secrets = true
	case schema.GroupKind{Group: rbacv1.GroupName, Kind: "ClusterRole"}, schema.GroupKind{Group: rbacv1.GroupName, Kind: "Role"}:
		role := &rbacv1.Role{}
		if into(u, role) {
			s.roles[scoped(object)] = role.Rules
		}
	case schema.GroupKind{Group: rbacv1.GroupName, Kind: "ClusterRoleBinding"}, schema.GroupKind{Group: rbacv1.GroupName, Kind: "RoleBinding"}:
		s.binding(u, scoped(object))
	}
}

// scoped removes the namespace from objects of cluster-scoped kinds.
func scoped(o lint.Object) lint.Object {
	if strings.HasPrefix(o.Kind, "Cluster") {
		o.Namespace = ""
	}
	return o
}

// into reads an object as a type, whose fields are the same in all versions of its kind.
func into(u *unstructured.Unstructured, obj any) bool {
	return runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, obj) == nil
}

// waits notes an object that waits for an initializer.
func (s *survey) waits(u *unstructured.Unstructured, object lint.Object) {
	pending, _, _ := unstructured.NestedSlice(u.Object, "metadata", "initializers", "pending")
	if len(pending) == 0 {
		return
	}
	first, _ := pending[0].(map[string]any)
	name, _ := first["name"].(string)
	s.world.Waiting = append(s.world.Waiting, lint.WaitingObject{Object: object, Initializer: name, Since: u.GetCreationTimestamp().Time})
}

func (s *survey) endpoints(u *unstructured.Unstructured, namespace string) {
	slice := &discoveryv1.EndpointSlice{}
	if !into(u, slice) {
		return
	}
	name := types.NamespacedName{Namespace: namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}
	ready := s.world.Ready[name]
	for _, e := range slice.Endpoints {
		// Nil means ready.
		if len(e.Addresses) > 0 && (e.Conditions.Ready == nil || *e.Conditions.Ready) {
			ready++
		}
	}
	s.world.Ready[name] = ready
}

func (s *survey) workload(u *unstructured.Unstructured, object lint.Object) {
	var d struct {
		Spec struct {
			Selector *metav1.LabelSelector  `json:"selector"`
			Replicas *int                   `json:"replicas"`
			Template corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	// A document without a selector is a part of a workload, such as a patch.
	if !into(u, &d) || d.Spec.Selector == nil {
		return
	}
	strategy, _, _ := unstructured.NestedString(u.Object, "spec", "strategy", "type")
	one := lint.Workload{Object: object, Anywhere: u.GetNamespace() == "", Pods: d.Spec.Template, Replicas: 1, Recreated: strategy == string(appsv1.RecreateDeploymentStrategyType)}
	switch {
	case object.Kind == "DaemonSet":
		one.Replicas = -1
	case d.Spec.Replicas != nil:
		one.Replicas = *d.Spec.Replicas
	}
	if i := slices.IndexFunc(s.world.Workloads, func(w lint.Workload) bool { return w.Object == object }); i >= 0 {
		if s.world.Partial {
			// Several files have it, such as the files of two variants: which one is applied is unknown.
			one.Replicas = max(one.Replicas, s.world.Workloads[i].Replicas)
		}
		s.world.Workloads[i] = one
		return
	}
	s.world.Workloads = append(s.world.Workloads, one)
}

// definition notes a custom resource and its conversion webhook.
func (s *survey) definition(u *unstructured.Unstructured, custom map[schema.GroupResource]bool) {
	group, _, _ := unstructured.NestedString(u.Object, "spec", "group")
	plural, _, _ := unstructured.NestedString(u.Object, "spec", "names", "plural")
	versions, _, _ := unstructured.NestedSlice(u.Object, "spec", "versions")
	resource := schema.GroupResource{Group: group, Resource: plural}
	custom[resource] = hasRules(versions)
	if before := s.definitions[u.GetName()]; before != nil && s.world.Partial && !slices.Equal(versionsOf(before), versionsOf(u)) {
		s.world.Several[resource] = true
	}
	s.definitions[u.GetName()] = u
	conversion := apiextensionsv1.CustomResourceConversion{}
	content, _, _ := unstructured.NestedMap(u.Object, "spec", "conversion")
	// Objects of a CRD with one version are never converted.
	if runtime.DefaultUnstructuredConverter.FromUnstructured(content, &conversion) != nil || conversion.Strategy != apiextensionsv1.WebhookConverter ||
		conversion.Webhook == nil || conversion.Webhook.ClientConfig == nil || len(versions) < 2 {
		return
	}
	object, config := lint.Object{Kind: u.GetKind(), Name: u.GetName()}, conversion.Webhook.ClientConfig
	client := registration.ClientConfig{URL: ptr.Deref(config.URL, ""), CABundle: config.CABundle}
	if c := config.Service; c != nil {
		client.Service = &registration.Service{Namespace: c.Namespace, Name: c.Name, Path: ptr.Deref(c.Path, ""), Port: ptr.Deref(c.Port, 443)}
	}
	as := writtenOf(u)
	as.Fields = fieldsOf(u)
	s.world.Written[object] = as
	s.world.Conversions = append(slices.DeleteFunc(s.world.Conversions, func(c lint.Conversion) bool { return c.Object == object }),
		lint.Conversion{Object: object, Client: client, Storage: storageOf(versions), Stored: storedIn(u)})
}

// storageOf returns the storage version of a CRD.
func storageOf(versions []any) string {
	for _, v := range versions {
		if version, _ := v.(map[string]any); version["storage"] == true {
			return fmt.Sprint(version["name"])
		}
	}
	return ""
}

// storedIn returns the versions in which objects of a CRD may be stored.
func storedIn(u *unstructured.Unstructured) []string {
	list, _, _ := unstructured.NestedStringSlice(u.Object, "status", "storedVersions")
	return list
}

// versionsOf returns the names of the versions of a CRD, sorted.
func versionsOf(u *unstructured.Unstructured) (names []string) {
	versions, _, _ := unstructured.NestedSlice(u.Object, "spec", "versions")
	for _, v := range versions {
		version, _ := v.(map[string]any)
		names = append(names, fmt.Sprint(version["name"]))
	}
	slices.Sort(names)
	return names
}

// hasRules reports whether a part of a CRD has validation rules, or describes the fields of the spec.
func hasRules(part any) bool {
	switch part := part.(type) {
	case map[string]any:
		if rules, ok := part["x-kubernetes-validations"].([]any); ok && len(rules) > 0 {
			return true
		}
		spec, _ := part["spec"].(map[string]any)
		if fields, _ := spec["properties"].(map[string]any); len(fields) > 0 {
			return true
		}
		for _, below := range part {
			if hasRules(below) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(part, hasRules)
	}
	return false
}

func (s *survey) binding(u *unstructured.Unstructured, object lint.Object) {
	b := &rbacv1.RoleBinding{}
	if !into(u, b) {
		return
	}
	one := binding{object: object, role: lint.Object{Kind: b.RoleRef.Kind, Name: b.RoleRef.Name}}
	if b.RoleRef.Kind == "Role" {
		one.role.Namespace = object.Namespace
	}
	for _, subject := range b.Subjects {
		if subject.Kind == rbacv1.GroupKind || subject.Kind == rbacv1.UserKind {
			one.groups = append(one.groups, subject.Name)
		}
	}
	s.bindings = append(slices.DeleteFunc(s.bindings, func(b binding) bool { return b.object == object }), one)
}

// injectors notes the kinds with a caBundle that the subjects of a role may change.
func (s *survey) injectors() {
	s.world.Injectors, s.world.NoRoles = map[string]bool{}, s.world.Partial && len(s.roles) == 0
	has := func(list []string, wanted ...string) bool {
		return slices.ContainsFunc(append(wanted, "*"), func(one string) bool { return slices.Contains(list, one) })
	}
	for _, rules := range s.roles {
		for _, r := range rules {
			if !has(r.Verbs, "update", "patch") {
				continue
			}
			for _, d := range registration.Sources() {
				if has(r.APIGroups, registration.GroupName) && has(r.Resources, d.Resource) {
					s.world.Injectors[d.Kind] = true
				}
			}
			if has(r.APIGroups, definitions.Group) && has(r.Resources, "customresourcedefinitions") {
				s.world.Injectors[definitions.Kind] = true
			}
		}
	}
}

// keepers notes the custom resources that a Role allows in its namespace: their objects are there.
func (s *survey) keepers() {
	for role, rules := range s.roles {
		for i := range s.world.Resources {
			of := &s.world.Resources[i]
			if of.Custom && role.Namespace != "" && slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
				return slices.Contains(r.APIGroups, of.Group) && slices.Contains(r.Resources, of.Resource)
			}) {
				s.world.Kept[lint.Kept{GroupKind: of.Kind.GroupKind(), Namespace: role.Namespace}] = true
			}
		}
	}
}

// grants adds the rules of roles for the groups of their bindings.
func (s *survey) grants() {
	for _, b := range s.bindings {
		for _, group := range b.groups {
			s.world.Grants = append(s.world.Grants, lint.Grant{Binding: b.object, Role: b.role.Name, Group: group, Rules: s.roles[b.role]})
		}
	}
}

// writtenOf returns the metadata that show how an object was written.
func writtenOf(m metav1.Object) lint.Written {
	return lint.Written{Annotations: m.GetAnnotations(), Labels: m.GetLabels(), Injection: m.GetAnnotations()[lint.InjectCAFrom], UID: m.GetUID(), Created: m.GetCreationTimestamp().Time, Enforced: lint.EnforcedSince(m)}
}
