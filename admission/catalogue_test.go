package admission

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	appsv1beta2 "k8s.io/api/apps/v1beta2"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/admission"
	applyconfigurations "k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kube-openapi/pkg/validation/spec"
	kjson "sigs.k8s.io/json"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
)

// served is one resource, or subresource, of a server for tests.
type served struct {
	resource    schema.GroupVersionResource
	subresource string
	// kind is empty for a resource of unknown kind.
	kind       schema.GroupVersionKind
	namespaced bool
	operations []admission.Operation
	// hub returns the object in the server's internal form, like the internal types of
	// k8s.io/apiserver: without apiVersion and kind. Nil for custom resources.
	hub func() runtime.Object
}

func at(group, version, resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
}

func is(group, version, kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: group, Version: version, Kind: kind}
}

var (
	stored     = []admission.Operation{admission.Create, admission.Update, admission.Delete}
	creates    = []admission.Operation{admission.Create}
	updates    = []admission.Operation{admission.Update}
	connects   = []admission.Operation{admission.Connect}
	podHub     = func() runtime.Object { return &corev1.Pod{} }
	scaleHub   = func() runtime.Object { return &appsv1beta2.Scale{} }
	nsHub      = func() runtime.Object { return &corev1.Namespace{} }
	bindingHub = func() runtime.Object { return &corev1.Binding{} }
	deployHub  = func() runtime.Object { return &appsv1beta2.Deployment{} }
)

// catalogue has the resources of the server. Deployments are the same objects in two groups,
// widgets in two versions.
var catalogue = []served{
	{at("", "v1", "pods"), "", is("", "v1", "Pod"), true, stored, podHub},
	{at("", "v1", "pods"), "status", is("", "v1", "Pod"), true, updates, podHub},
	{at("", "v1", "pods"), "exec", is("", "v1", "PodExecOptions"), true, connects, func() runtime.Object { return &corev1.PodExecOptions{} }},
	{at("", "v1", "pods"), "binding", is("", "v1", "Binding"), true, creates, bindingHub},
	{at("", "v1", "pods"), "eviction", is("policy", "v1", "Eviction"), true, creates, func() runtime.Object { return &policyv1.Eviction{} }},
	{at("", "v1", "bindings"), "", is("", "v1", "Binding"), true, creates, bindingHub},
	{at("", "v1", "namespaces"), "", is("", "v1", "Namespace"), false, stored, nsHub},
	{at("", "v1", "namespaces"), "finalize", is("", "v1", "Namespace"), false, updates, nsHub},
	{at("apps", "v1", "deployments"), "", is("apps", "v1", "Deployment"), true, stored, deployHub},
	{at("extensions", "v1beta1", "deployments"), "", is("extensions", "v1beta1", "Deployment"), true, stored, deployHub},
	{at("apps", "v1", "deployments"), "scale", is("autoscaling", "v1", "Scale"), true, updates, scaleHub},
	{at("extensions", "v1beta1", "deployments"), "scale", is("extensions", "v1beta1", "Scale"), true, updates, scaleHub},
	{at("example.com", "v1", "widgets"), "", is("example.com", "v1", "Widget"), true, stored, nil},
	{at("example.com", "v2", "widgets"), "", is("example.com", "v2", "Widget"), true, stored, nil},
	{at("example.com", "v1", "widgets"), "status", is("example.com", "v1", "Widget"), true, updates, nil},
	{at("example.com", "v2", "widgets"), "status", is("example.com", "v2", "Widget"), true, updates, nil},
	{at("example.com", "v1", "gadgets"), "", is("example.com", "v1", "Gadget"), false, stored, nil},
	{at("example.com", "v1", "oddities"), "", is("example.com", "v1", "Oddity"), true, stored, nil},
	{at("example.com", "v2", "oddities"), "", schema.GroupVersionKind{}, true, nil, nil},
	{at("example.com", "v1", "namespaces"), "", is("example.com", "v1", "Namespace"), false, stored, nil},
	{at("tenants.example.com", "v1", "namespaces"), "", is("tenants.example.com", "v1", "Namespace"), true, stored, nil},
	{at(registration.GroupName, "v1", "mutatingwebhookconfigurations"), "", is(registration.GroupName, "v1", registration.MutatingKind), false, stored, nil},
	{at(registration.GroupName, "v1alpha1", "initializerconfigurations"), "", is(registration.GroupName, "v1alpha1", registration.InitializerKind), false, stored, nil},
	{at("authorization.k8s.io", "v1", "subjectaccessreviews"), "", is("authorization.k8s.io", "v1", "SubjectAccessReview"), false, creates, func() runtime.Object { return &authorizationv1.SubjectAccessReview{} }},
}

// versioned are the types of the versions of typed objects.
var versioned = map[schema.GroupVersionKind]func() runtime.Object{
	is("", "v1", "Pod"):                                     podHub,
	is("", "v1", "PodExecOptions"):                          func() runtime.Object { return &corev1.PodExecOptions{} },
	is("", "v1", "Binding"):                                 bindingHub,
	is("", "v1", "Namespace"):                               nsHub,
	is("policy", "v1", "Eviction"):                          func() runtime.Object { return &policyv1.Eviction{} },
	is("apps", "v1", "Deployment"):                          func() runtime.Object { return &appsv1.Deployment{} },
	is("extensions", "v1beta1", "Deployment"):               func() runtime.Object { return &extensionsv1beta1.Deployment{} },
	is("autoscaling", "v1", "Scale"):                        func() runtime.Object { return &autoscalingv1.Scale{} },
	is("extensions", "v1beta1", "Scale"):                    func() runtime.Object { return &extensionsv1beta1.Scale{} },
	is("authorization.k8s.io", "v1", "SubjectAccessReview"): func() runtime.Object { return &authorizationv1.SubjectAccessReview{} },

	is(registration.GroupName, "v1", registration.MutatingPolicyKind): func() runtime.Object { return &admissionregistrationv1.MutatingAdmissionPolicy{} },
}

// catalogueScheme creates and converts the objects of the catalogue. An object with the annotation
// broken cannot be converted.
type catalogueScheme struct{}

func (catalogueScheme) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	if make, ok := versioned[kind]; ok {
		return make(), nil
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	return u, nil
}

func (catalogueScheme) Default(runtime.Object) {}

func (catalogueScheme) Convert(in, out, _ any) error {
	if m, err := meta.Accessor(in); err == nil && m.GetAnnotations()["broken"] != "" {
		return errors.New("the object is broken and cannot be converted")
	}
	if to, ok := out.(*unstructured.Unstructured); ok {
		return convertWidget(in.(*unstructured.Unstructured), to)
	}
	data, err := json.Marshal(in)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, out); err != nil {
		return err
	}
	out.(runtime.Object).GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return nil
}

// convertWidget converts a custom resource. The field size of v1 is named big in v2.
func convertWidget(from, to *unstructured.Unstructured) error {
	want := to.GroupVersionKind()
	content := from.DeepCopy().Object
	old, name := "big", "size"
	if want.Version == "v2" {
		old, name = name, old
	}
	if value, ok := content[old]; ok {
		delete(content, old)
		content[name] = value
	}
	to.Object = content
	to.SetGroupVersionKind(want)
	return nil
}

func (catalogueScheme) ConvertToVersion(runtime.Object, runtime.GroupVersioner) (runtime.Object, error) {
	return nil, errors.New("admission converts in place")
}

func (catalogueScheme) ConvertFieldLabel(schema.GroupVersionKind, string, string) (string, string, error) {
	return "", "", errors.New("admission has no field labels")
}

// catalogueInterfaces are the admission interfaces of a server with the catalogue.
var catalogueInterfaces = func() admission.ObjectInterfaces {
	equivalents := runtime.NewEquivalentResourceRegistryWithIdentity(func(r schema.GroupResource) string {
		if r.Resource == "deployments" {
			return "deployments"
		}
		return ""
	})
	for _, s := range catalogue {
		equivalents.RegisterKindFor(s.resource, s.subresource, s.kind)
	}
	scheme := catalogueScheme{}
	return &admission.RuntimeObjectInterfaces{
		ObjectCreater: scheme, ObjectDefaulter: scheme, ObjectConvertor: scheme, EquivalentResourceMapper: equivalents,
	}
}()

// held converts an object, as a user writes it, to the server's form.
func (s *served) held(content map[string]any) (runtime.Object, error) {
	if content == nil {
		return nil, nil
	}
	if s.hub == nil {
		u := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(content)}
		u.SetGroupVersionKind(s.kind)
		return u, nil
	}
	data, err := json.Marshal(content)
	if err != nil {
		return nil, err
	}
	hub := s.hub()
	if err := json.Unmarshal(data, hub); err != nil {
		return nil, fmt.Errorf("the object is no %s: %w", s.kind.Kind, err)
	}
	hub.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return hub, nil
}

// written is held for an object that may have metadata.initializers: a server keeps the list where
// initializers.Set writes it.
func (s *served) written(content map[string]any) (runtime.Object, error) {
	list, found, err := unstructured.NestedMap(content, "metadata", "initializers")
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(content)
	if err != nil {
		return nil, err
	}
	// A server preserves integers.
	content = nil
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &content); err != nil {
		return nil, err
	}
	unstructured.RemoveNestedField(content, "metadata", "initializers")
	object, err := s.held(content)
	if err != nil || !found {
		return object, err
	}
	sent := &initializers.Initializers{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list, sent); err != nil {
		return nil, err
	}
	initializers.Set(object, sent)
	return object, nil
}

// widgetSchemas are the schemas of custom resources, as in their CRDs, and of the kind Scale.
const widgetSchemas = `{
	"com.example.v1.Widget": {
		"type": "object", "x-kubernetes-group-version-kind": [{"group": "example.com", "version": "v1", "kind": "Widget"}],
		"properties": {
			"apiVersion": {"type": "string"}, "kind": {"type": "string"},
			"metadata": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
			"size": {"type": "integer"}, "color": {"type": "string"}
		}
	},
	"com.example.v2.Widget": {
		"type": "object", "x-kubernetes-group-version-kind": [{"group": "example.com", "version": "v2", "kind": "Widget"}],
		"properties": {
			"apiVersion": {"type": "string"}, "kind": {"type": "string"},
			"metadata": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
			"big": {"type": "integer"}, "color": {"type": "string"}
		}
	},
	"io.k8s.api.autoscaling.v1.Scale": {
		"type": "object", "x-kubernetes-group-version-kind": [{"group": "autoscaling", "version": "v1", "kind": "Scale"}],
		"properties": {
			"apiVersion": {"type": "string"}, "kind": {"type": "string"},
			"metadata": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
			"spec": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
			"status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}
		}
	}
}`

// schemasOf are the schemas of the catalogue: of built-in kinds, and of the custom kinds above.
type schemasOf struct{ builtin, custom managedfields.TypeConverter }

func (s schemasOf) TypeConverter(kind schema.GroupVersionKind) managedfields.TypeConverter {
	switch {
	case kind.Kind == "Widget", kind.Kind == "Scale":
		return s.custom
	case versioned[kind] == nil || strings.HasSuffix(kind.Kind, "Options"):
		return nil
	}
	return s.builtin
}

var catalogueSchemas = func() schemasOf {
	var definitions map[string]*spec.Schema
	if err := json.Unmarshal([]byte(widgetSchemas), &definitions); err != nil {
		panic(err)
	}
	custom, err := managedfields.NewTypeConverter(definitions, false)
	if err != nil {
		panic(err)
	}
	return schemasOf{applyconfigurations.NewTypeConverter(scheme.Scheme), custom}
}()
