package agreement

import (
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	authorizationv1 "k8s.io/api/authorization/v1"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiextensions-apiserver/pkg/crdserverscheme"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/authorization/install"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/events/install"
)

// endpoint is a target of requests: a resource or subresource in one version.
type endpoint struct {
	resource    schema.GroupVersionResource
	subresource string
	kind        schema.GroupVersionKind
	namespaced  bool
	operations  []admission.Operation
	// make returns an object of the kind, in any version.
	make func(*generator, metav1.ObjectMeta) runtime.Object
	// mapped reports whether the resource is only mapped to a kind, and is not served.
	mapped bool
}

const (
	create = admission.Create
	update = admission.Update
	remove = admission.Delete
	joined = admission.Connect
)

var writes = []admission.Operation{create, create, update, update, remove}

func endpoints() []*endpoint {
	var all []*endpoint
	add := func(group, version, resource, subresource string, kind schema.GroupVersionKind, namespaced bool, operations []admission.Operation, make func(*generator, metav1.ObjectMeta) runtime.Object) *endpoint {
		e := &endpoint{
			resource:    schema.GroupVersionResource{Group: group, Version: version, Resource: resource},
			subresource: subresource, kind: kind, namespaced: namespaced, operations: operations, make: make,
		}
		all = append(all, e)
		return e
	}
	core := func(kind string) schema.GroupVersionKind { return corev1.SchemeGroupVersion.WithKind(kind) }
	updates := []admission.Operation{update}

	add("", "v1", "pods", "", core("Pod"), true, writes, pod)
	add("", "v1", "pods", "status", core("Pod"), true, updates, pod)
	add("", "v1", "pods", "exec", core("PodExecOptions"), true, []admission.Operation{joined}, func(g *generator, _ metav1.ObjectMeta) runtime.Object {
		return &corev1.PodExecOptions{Stdin: g.chance(50), Container: "main", Command: []string{"sh"}}
	})
	add("", "v1", "pods", "binding", core("Binding"), true, []admission.Operation{create}, func(_ *generator, m metav1.ObjectMeta) runtime.Object {
		return &corev1.Binding{ObjectMeta: m, Target: corev1.ObjectReference{Kind: "Node", Name: "n1"}}
	})
	add("", "v1", "configmaps", "", core("ConfigMap"), true, writes, func(g *generator, m metav1.ObjectMeta) runtime.Object {
		return &corev1.ConfigMap{ObjectMeta: m, Data: map[string]string{"key": g.word()}}
	})
	add("", "v1", "nodes", "", core("Node"), false, writes, node)
	add("", "v1", "nodes", "status", core("Node"), false, updates, node)
	namespace := func(_ *generator, m metav1.ObjectMeta) runtime.Object { return &corev1.Namespace{ObjectMeta: m} }
	add("", "v1", "namespaces", "", core("Namespace"), false, writes, namespace)
	add("", "v1", "namespaces", "status", core("Namespace"), false, updates, namespace)
	add("", "v1", "namespaces", "finalize", core("Namespace"), false, updates, namespace)

	for _, version := range []string{"v1", "v1beta1", "v1beta2"} {
		kind := schema.GroupVersionKind{Group: "apps", Version: version, Kind: "Deployment"}
		scale := schema.GroupVersionKind{Group: "apps", Version: version, Kind: "Scale"}
		if version == "v1" {
			scale = autoscalingv1.SchemeGroupVersion.WithKind("Scale")
		}
		add("apps", version, "deployments", "", kind, true, writes, deployment)
		add("apps", version, "deployments", "status", kind, true, updates, deployment)
		add("apps", version, "deployments", "scale", scale, true, updates, func(g *generator, m metav1.ObjectMeta) runtime.Object {
			return &autoscalingv1.Scale{ObjectMeta: m, Spec: autoscalingv1.ScaleSpec{Replicas: int32(g.IntN(4))}}
		})
	}
	// Two groups with the same storage.
	add("", "v1", "events", "", core("Event"), true, writes, event)
	add("events.k8s.io", "v1", "events", "", schema.GroupVersionKind{Group: "events.k8s.io", Version: "v1", Kind: "Event"}, true, writes, event)

	for _, version := range []string{"v1", "v2"} {
		widget := schema.GroupVersionKind{Group: "example.com", Version: version, Kind: "Widget"}
		add("example.com", version, "widgets", "", widget, true, writes, custom(widget))
		add("example.com", version, "widgets", "status", widget, true, updates, custom(widget))
	}
	add("example.com", "v3", "widgets", "", schema.GroupVersionKind{}, true, nil, nil).mapped = true
	gadget := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Gadget"}
	add("example.com", "v1", "gadgets", "", gadget, false, writes, custom(gadget))
	// Resources named namespaces outside of the core group: S2.10.
	for _, namespaced := range []bool{false, true} {
		group := "cluster.example.com"
		if namespaced {
			group = "tenant.example.com"
		}
		other := schema.GroupVersionKind{Group: group, Version: "v1", Kind: "Namespace"}
		add(group, "v1", namespaces, "", other, namespaced, writes, custom(other))
		add(group, "v1", namespaces, "status", other, namespaced, updates, custom(other))
	}

	// Kinds that no webhook intercepts.
	add("authorization.k8s.io", "v1", "subjectaccessreviews", "", authorizationv1.SchemeGroupVersion.WithKind("SubjectAccessReview"), false, []admission.Operation{create}, func(_ *generator, m metav1.ObjectMeta) runtime.Object {
		return &authorizationv1.SubjectAccessReview{ObjectMeta: m}
	})
	add("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", "", admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingWebhookConfiguration"), false, writes, func(_ *generator, m metav1.ObjectMeta) runtime.Object {
		return &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: m}
	})
	return all
}

const namespaces = "namespaces"

func pod(g *generator, m metav1.ObjectMeta) runtime.Object {
	return &corev1.Pod{ObjectMeta: m, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: g.word()}}}}
}

func node(g *generator, m metav1.ObjectMeta) runtime.Object {
	return &corev1.Node{ObjectMeta: m, Spec: corev1.NodeSpec{ProviderID: g.word()}}
}

func event(g *generator, m metav1.ObjectMeta) runtime.Object {
	return &corev1.Event{ObjectMeta: m, Reason: g.word(), Message: g.word(), Count: 1}
}

func deployment(g *generator, m metav1.ObjectMeta) runtime.Object {
	d := &appsv1.Deployment{ObjectMeta: m, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "a"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: g.word()}}},
		},
	}}
	if n := int32(g.IntN(4)); n > 0 {
		d.Spec.Replicas = &n
	}
	return d
}

// custom returns a function that generates custom resources. In v2, the field size is named scale.
func custom(kind schema.GroupVersionKind) func(*generator, metav1.ObjectMeta) runtime.Object {
	return func(g *generator, m metav1.ObjectMeta) runtime.Object {
		metadata := must(runtime.DefaultUnstructuredConverter.ToUnstructured(&m))
		delete(metadata, "creationTimestamp")
		spec := map[string]any{sizeOf(kind.Version): int64(g.IntN(4))}
		if g.chance(50) {
			spec["mode"] = g.word()
		}
		if g.chance(10) {
			spec["factor"] = 1.5
		}
		u := &unstructured.Unstructured{Object: map[string]any{"metadata": metadata, "spec": spec}}
		u.SetGroupVersionKind(kind)
		return u
	}
}

func sizeOf(version string) string {
	if version == "v2" {
		return "scale"
	}
	return "size"
}

// mapper knows the equivalent resources.
var mapper = func() runtime.EquivalentResourceMapper {
	r := runtime.NewEquivalentResourceRegistryWithIdentity(func(gr schema.GroupResource) string {
		if gr.Resource == "events" {
			return "events"
		}
		return ""
	})
	for _, e := range endpoints() {
		r.RegisterKindFor(e.resource, e.subresource, e.kind)
		if other := renamed(e.resource); other != e.resource {
			r.RegisterKindFor(other, e.subresource, e.kind)
		}
	}
	return r
}()

// interfaces returns the ObjectInterfaces of a server for built-in or custom resources.
func interfaces(custom bool) admission.ObjectInterfaces {
	if custom {
		return &admission.RuntimeObjectInterfaces{
			ObjectCreater: customs{}, ObjectTyper: crdserverscheme.NewUnstructuredObjectTyper(), ObjectDefaulter: customs{},
			ObjectConvertor: customs{}, EquivalentResourceMapper: mapper,
		}
	}
	i := admission.NewObjectInterfacesFromScheme(legacyscheme.Scheme).(*admission.RuntimeObjectInterfaces)
	i.EquivalentResourceMapper = mapper
	return i
}

// hub returns an object as the handlers of a server pass it to admission: built-in types in the internal version,
// custom resources in the version of the request.
func hub(object runtime.Object, defaulted bool) runtime.Object {
	if u, ok := object.(*unstructured.Unstructured); ok {
		if defaulted {
			customs{}.Default(u)
		}
		return u
	}
	if defaulted {
		legacyscheme.Scheme.Default(object)
	}
	return must(legacyscheme.Scheme.UnsafeConvertToVersion(object, runtime.InternalGroupVersioner))
}

// versioned returns a hub object converted to a kind, for output.
func versioned(object runtime.Object, kind schema.GroupVersionKind) (runtime.Object, error) {
	_, custom := object.(*unstructured.Unstructured)
	return admission.ConvertToGVK(object.DeepCopyObject(), kind, interfaces(custom))
}

// customs create, default and convert custom resources.
type customs struct{}

func (customs) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	return u, nil
}

func (customs) Default(object runtime.Object) {
	if u, ok := object.(*unstructured.Unstructured); ok {
		if spec, ok := u.Object["spec"].(map[string]any); ok && spec["mode"] == nil {
			spec["mode"] = "auto"
		}
	}
}

// unconvertible is the annotation of objects that cannot be converted.
const unconvertible = "example.com/unconvertible"

// Convert converts a copy of a custom resource, as the converter of a server does.
func (customs) Convert(in, out, _ any) error {
	from, to := in.(*unstructured.Unstructured), out.(*unstructured.Unstructured)
	kind := to.GroupVersionKind()
	content := from.DeepCopy().Object
	if from.GroupVersionKind() != kind {
		if from.GetAnnotations()[unconvertible] != "" {
			return errors.New("the object does not convert")
		}
		if from.GetKind() != kind.Kind {
			return fmt.Errorf("%s is no %s", from.GetKind(), kind.Kind)
		}
		if spec, ok := content["spec"].(map[string]any); ok {
			before, after := sizeOf(from.GroupVersionKind().Version), sizeOf(kind.Version)
			if size, ok := spec[before]; ok && before != after {
				delete(spec, before)
				spec[after] = size
			}
		}
	}
	to.Object = content
	to.SetGroupVersionKind(kind)
	return nil
}

func (customs) ConvertToVersion(runtime.Object, runtime.GroupVersioner) (runtime.Object, error) {
	return nil, errors.New("not used by admission")
}

func (customs) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}
