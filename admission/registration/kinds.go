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

// StaticSuffix ends the names of all registrations of manifest files, and of no registrations
// of the API (S13.13, S21.8).
const StaticSuffix = ".static.k8s.io"

// IsStaticName reports whether a name is that of a registration of a manifest file.
func IsStaticName(name string) bool { return strings.HasSuffix(name, StaticSuffix) }

// AddToScheme makes the registration kinds of all versions known to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	for _, add := range []func(*runtime.Scheme) error{v1.AddToScheme, v1beta1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			return err
		}
	}
	return nil
}

// FromContent makes a typed registration object of decoded JSON, by its apiVersion and kind. It
// drops unknown fields. The error says that the kind is not one of this package, or which field
// has the wrong type.
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

// Parse turns decoded JSON or YAML, as a user writes it, into the object that a server would
// store: typed, with all defaults. Parse does not validate. The errors are those of
// FromContent.
func Parse(content map[string]any) (runtime.Object, error) {
	obj, err := FromContent(content)
	if err == nil {
		Default(obj)
	}
	return obj, err
}

// known has the types that Entries reads, and the lists that Convert does.
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

// sourceOf returns the source of a kind in any version, nil for other kinds.
func sourceOf(gvk schema.GroupVersionKind) *Descriptor {
	for i := range sources {
		if gvk.Group == GroupName && gvk.Kind == sources[i].Kind {
			return &sources[i]
		}
	}
	return nil
}

// SourceOf returns the source of an object by its kind, in any version, typed or unstructured.
// ok is false for objects that are not registrations.
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

// typed returns obj as one of the types of this API.
func typed(obj runtime.Object) (runtime.Object, error) {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return FromContent(u.Object)
	}
	return obj, nil
}

// unknown returns the error of a function that got an object that is not a registration.
func unknown(obj runtime.Object) error {
	return fmt.Errorf("%T is not a registration", obj)
}
