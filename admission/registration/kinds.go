package registration

import (
	"fmt"
	"strings"
	"sync"

	v1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/api/admissionregistration/v1beta1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/admission/registration/v1alpha1"
)

// GroupName is the API group of all registration kinds.
const GroupName = "admissionregistration.k8s.io"

// The names of the registration kinds.
const (
	MutatingKind    = "MutatingWebhookConfiguration"
	ValidatingKind  = "ValidatingWebhookConfiguration"
	ExternalKind    = "ExternalAdmissionHookConfiguration"
	InitializerKind = "InitializerConfiguration"

	ValidatingPolicyKind  = "ValidatingAdmissionPolicy"
	ValidatingBindingKind = "ValidatingAdmissionPolicyBinding"
	MutatingPolicyKind    = "MutatingAdmissionPolicy"
	MutatingBindingKind   = "MutatingAdmissionPolicyBinding"
)

// StaticSuffix ends the names of all objects in manifest files, and of no objects of the API
// (S13.13, S21.8).
const StaticSuffix = ".static.k8s.io"

// IsStaticName reports whether a name is reserved for manifest files.
func IsStaticName(name string) bool { return strings.HasSuffix(name, StaticSuffix) }

// AddToScheme adds the kinds of all versions to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	for _, add := range []func(*runtime.Scheme) error{v1.AddToScheme, v1beta1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			return err
		}
	}
	return nil
}

// FromContent converts decoded JSON to a typed object, by its apiVersion and kind. It drops unknown
// fields. It is an error if the kind does not belong to this package, or a field has the wrong
// type; the error names the field.
func FromContent(content map[string]any) (runtime.Object, error) {
	gvk := (&unstructured.Unstructured{Object: content}).GroupVersionKind()
	obj := newObject(gvk)
	if obj == nil {
		return nil, fmt.Errorf("%s is not a kind of registration", gvk)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, obj); err != nil {
		return nil, fmt.Errorf("%s %q: %w", gvk.Kind, (&unstructured.Unstructured{Object: content}).GetName(), err)
	}
	return obj, nil
}

// Parse converts decoded JSON or YAML from a user to the object that a server would store: typed,
// with all defaults. Parse does not validate. It returns the errors of FromContent.
func Parse(content map[string]any) (runtime.Object, error) {
	obj, err := FromContent(content)
	if err == nil {
		Default(obj)
	}
	return obj, err
}

// known has the types for Entries, and the lists for Convert.
var known = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	s.AddKnownTypes(v1.SchemeGroupVersion,
		&v1.MutatingWebhookConfiguration{}, &v1.MutatingWebhookConfigurationList{},
		&v1.ValidatingWebhookConfiguration{}, &v1.ValidatingWebhookConfigurationList{},
		&v1.ValidatingAdmissionPolicy{}, &v1.ValidatingAdmissionPolicyBinding{},
		&v1.MutatingAdmissionPolicy{}, &v1.MutatingAdmissionPolicyBinding{})
	s.AddKnownTypes(v1beta1.SchemeGroupVersion,
		&v1beta1.MutatingWebhookConfiguration{}, &v1beta1.MutatingWebhookConfigurationList{},
		&v1beta1.ValidatingWebhookConfiguration{}, &v1beta1.ValidatingWebhookConfigurationList{},
		&v1beta1.MutatingAdmissionPolicy{}, &v1beta1.MutatingAdmissionPolicyBinding{})
	s.AddKnownTypes(v1alpha1.SchemeGroupVersion, &v1alpha1.ExternalAdmissionHookConfiguration{}, &v1alpha1.InitializerConfiguration{})
	return s
})

func newObject(gvk schema.GroupVersionKind) runtime.Object {
	if obj, err := known().New(gvk); err == nil && sourceOf(gvk) != nil {
		return obj
	}
	return nil
}

// sourceOf returns the source of a kind in any version; nil for other kinds.
func sourceOf(gvk schema.GroupVersionKind) *Descriptor {
	for i := range sources {
		if gvk.Group == GroupName && gvk.Kind == sources[i].Kind {
			return &sources[i]
		}
	}
	return nil
}

// SourceOf returns the source of an object by its kind, in any version, typed or unstructured. ok
// is false for other kinds.
func SourceOf(obj runtime.Object) (s Source, ok bool) {
	kinds, _, err := known().ObjectKinds(obj)
	if err != nil {
		return 0, false
	}
	d := sourceOf(kinds[0])
	if d == nil {
		return 0, false
	}
	return d.Source, true
}

// typed converts obj to a type of this API.
func typed(obj runtime.Object) (runtime.Object, error) {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return FromContent(u.Object)
	}
	return obj, nil
}

// unknown returns the error for an object of another kind.
func unknown(obj runtime.Object) error {
	return fmt.Errorf("%T is not a registration", obj)
}
