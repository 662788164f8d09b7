package plugins_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/randfill"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	api "k8s.io/kubernetes/pkg/apis/core"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/internal/engine/objects"
	"github.com/gatehouse-dev/gatehouse/plugins"
)

// defaults are objects of a cluster by which each mutating plugin has something to change.
var defaults = []runtime.Object{
	&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", Annotations: map[string]string{
		"scheduler.alpha.kubernetes.io/node-selector": "a=b", "scheduler.alpha.kubernetes.io/defaultTolerations": `[{"key":"a","operator":"Exists"}]`,
	}}},
	&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "default"}, ImagePullSecrets: []corev1.LocalObjectReference{{Name: "s"}}},
	&corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "l"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
		Type: corev1.LimitTypeContainer, Default: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
	}}}},
	&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{corev1.LabelTopologyZone: "z"}}},
	&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Value: 5, GlobalDefault: true},
	&nodev1.RuntimeClass{
		ObjectMeta: metav1.ObjectMeta{Name: "r"},
		Overhead:   &nodev1.Overhead{PodFixed: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
		Scheduling: &nodev1.Scheduling{NodeSelector: map[string]string{"c": "d"}, Tolerations: []corev1.Toleration{{Key: "b", Operator: corev1.TolerationOpExists}}},
	},
	&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "c", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}}},
	&networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: "i", Annotations: map[string]string{networkingv1.AnnotationIsDefaultIngressClass: "true"}}},
}

// S9.18: a plugin that lists fields changes no other field: a trace compares only these after the plugin.
func TestPluginsChangeOnlyTheirFields(t *testing.T) {
	fill := randfill.NewWithSeed(1).NilChance(.3).NumElements(1, 2).MaxDepth(7).Funcs(
		func(q *resource.Quantity, c randfill.Continue) {
			*q = *resource.NewQuantity(c.Int63n(1e6), resource.DecimalSI)
		},
		func(t *metav1.Time, c randfill.Continue) { *t = metav1.Unix(c.Int63n(1e9), 0) },
	)
	interfaces := apiadmission.NewObjectInterfacesFromScheme(legacyscheme.Scheme)
	listed := 0
	for _, row := range plugins.All() {
		o := onCluster(t, configured(t, row.Name))
		o.Client = fake.NewClientset(defaults...)
		o.Informers = informers.NewSharedInformerFactory(o.Client, 0)
		p, err := plugins.New(row.Name, o)
		if err != nil {
			t.Fatalf("%s: %v", row.Name, err)
		}
		fields := p.(admission.Confined).Fields()
		if !p.(admission.Described).Changes() || row.Name == "EventRateLimit" {
			if fields != nil {
				t.Errorf("%s lists fields and changes nothing", row.Name)
			}
			continue
		}
		if fields == nil {
			t.Errorf("%s lists no fields", row.Name)
			continue
		}
		listed++
		o.Informers.Start(t.Context().Done())
		o.Informers.WaitForCacheSync(t.Context().Done())
		changed := map[string]int{}
		for _, about := range row.About {
			for _, op := range []apiadmission.Operation{apiadmission.Create, apiadmission.Update} {
				if about.Operations != nil && !slices.Contains(about.Operations, op) || !p.Handles(op) {
					continue
				}
				for range 20 {
					kind := kindOf(t, about)
					object, err := legacyscheme.Scheme.New(kind)
					if err != nil {
						t.Fatal(err)
					}
					fill.Fill(object)
					adjust(object)
					before := object.DeepCopyObject()
					resource := schema.GroupVersionResource{Group: about.Group, Version: "v1", Resource: about.Resource}
					// A plugin that refuses the object may have changed it as well.
					_ = p.(apiadmission.MutationInterface).Admit(t.Context(), apiadmission.NewAttributesRecord(object, before.DeepCopyObject(), kind, "ns", "o",
						resource, about.Subresource, op, &metav1.CreateOptions{}, false, nil), interfaces)
					for _, path := range fields {
						old, now := fieldAt(before, path), fieldAt(object, path)
						if !now.IsValid() {
							continue
						}
						if !objects.SameFields(before, object, []string{path}) {
							changed[path]++
						}
						now.Set(old)
					}
					if !objects.Same(before, object) {
						t.Errorf("%s: %s of %s changes another field than %q", row.Name, op, about.Resource, fields)
					}
				}
			}
		}
		// The feature GenericWorkload enables this plugin.
		if len(changed) == 0 && row.Name != "PodGroupProtection" {
			t.Errorf("%s changed nothing", row.Name)
		}
		t.Logf("%s changed %v", row.Name, changed)
	}
	if listed < 15 {
		t.Errorf("%d plugins list fields", listed)
	}
}

// kindOf returns the kind of the objects of a resource or subresource.
func kindOf(t *testing.T, about plugins.About) schema.GroupVersionKind {
	t.Helper()
	if about.Subresource == "binding" {
		return api.SchemeGroupVersion.WithKind("Binding")
	}
	for kind := range legacyscheme.Scheme.AllKnownTypes() {
		if kind.Group == about.Group && kind.Version == runtime.APIVersionInternal && strings.EqualFold(kind.Kind+"s", strings.Replace(about.Resource, "classes", "classs", 1)) ||
			kind.Group == about.Group && kind.Version == runtime.APIVersionInternal && strings.EqualFold(kind.Kind+"es", about.Resource) {
			return kind
		}
	}
	t.Fatalf("no kind of %s", about.Resource)
	return schema.GroupVersionKind{}
}

// adjust sets fields of a random object for which plugins would refuse or ignore it.
func adjust(object runtime.Object) {
	switch o := object.(type) {
	case *api.Pod:
		o.Annotations = nil
		class := "r"
		o.Spec.RuntimeClassName, o.Spec.Overhead, o.Spec.Priority, o.Spec.PreemptionPolicy = &class, nil, nil, nil
		o.Spec.NodeName, o.Spec.PriorityClassName, o.Spec.ServiceAccountName, o.Spec.NodeSelector = "n", "", "", nil
		o.Spec.ImagePullSecrets = nil
		requests := api.ResourceList{"example.com/gpu": resource.MustParse("1")}
		o.Spec.Containers = append(o.Spec.Containers, api.Container{Name: "more", Resources: api.ResourceRequirements{Requests: requests}})
	case *api.Binding:
		o.Target.Kind, o.Target.Name = "Node", "n"
	case *api.PersistentVolumeClaim:
		o.Annotations, o.Spec.StorageClassName = nil, nil
	}
	if a, ok := object.(metav1.Object); ok {
		a.SetNamespace("ns")
		a.SetFinalizers(nil)
		a.SetDeletionTimestamp(nil)
	}
	if spec := reflect.Indirect(reflect.ValueOf(object)).FieldByName("Spec"); spec.IsValid() {
		if class := spec.FieldByName("IngressClassName"); class.IsValid() {
			class.SetZero()
			object.(metav1.Object).SetAnnotations(nil)
		}
	}
}

// fieldAt returns the field at a path of Go field names; the zero Value if the type lacks it.
func fieldAt(object runtime.Object, path string) reflect.Value {
	v := reflect.Indirect(reflect.ValueOf(object))
	for name := range strings.SplitSeq(path, ".") {
		if v = v.FieldByName(name); !v.IsValid() {
			return v
		}
	}
	return v
}
