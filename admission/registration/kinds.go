package registration

import (
	"fmt"
	"strings"

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

func newObject(gvk schema.GroupVersionKind) runtime.Object {
	if gvk.Group != GroupName {
		return nil
	}
	switch gvk.Version + " " + gvk.Kind {
	case "v1 " + MutatingKind:
		return &v1.MutatingWebhookConfiguration{}
	case "v1 " + ValidatingKind:
		return &v1.ValidatingWebhookConfiguration{}
	case "v1beta1 " + MutatingKind:
		return &v1beta1.MutatingWebhookConfiguration{}
	case "v1beta1 " + ValidatingKind:
		return &v1beta1.ValidatingWebhookConfiguration{}
	case "v1alpha1 " + ExternalKind:
		return &v1alpha1.ExternalAdmissionHookConfiguration{}
	case "v1alpha1 " + InitializerKind:
		return &v1alpha1.InitializerConfiguration{}
	case "v1 " + ValidatingPolicyKind:
		return &v1.ValidatingAdmissionPolicy{}
	case "v1 " + ValidatingBindingKind:
		return &v1.ValidatingAdmissionPolicyBinding{}
	case "v1 " + MutatingPolicyKind:
		return &v1.MutatingAdmissionPolicy{}
	case "v1 " + MutatingBindingKind:
		return &v1.MutatingAdmissionPolicyBinding{}
	case "v1beta1 " + MutatingPolicyKind:
		return &v1beta1.MutatingAdmissionPolicy{}
	case "v1beta1 " + MutatingBindingKind:
		return &v1beta1.MutatingAdmissionPolicyBinding{}
	}
	return nil
}

// SourceOf returns the source of an object by its kind, in any version, typed or unstructured.
// ok is false for objects that are not registrations.
func SourceOf(obj runtime.Object) (s Source, ok bool) {
	switch o := obj.(type) {
	case *v1.MutatingWebhookConfiguration, *v1beta1.MutatingWebhookConfiguration:
		return Mutating, true
	case *v1.ValidatingWebhookConfiguration, *v1beta1.ValidatingWebhookConfiguration:
		return Validating, true
	case *v1alpha1.ExternalAdmissionHookConfiguration:
		return External, true
	case *v1alpha1.InitializerConfiguration:
		return Initializing, true
	case *v1.ValidatingAdmissionPolicy:
		return ValidatingPolicies, true
	case *v1.ValidatingAdmissionPolicyBinding:
		return ValidatingBindings, true
	case *v1.MutatingAdmissionPolicy, *v1beta1.MutatingAdmissionPolicy:
		return MutatingPolicies, true
	case *v1.MutatingAdmissionPolicyBinding, *v1beta1.MutatingAdmissionPolicyBinding:
		return MutatingBindings, true
	case *unstructured.Unstructured:
		gvk := o.GroupVersionKind()
		for i := range sources {
			if gvk.Group == GroupName && gvk.Kind == sources[i].Kind {
				return sources[i].Source, true
			}
		}
	}
	return 0, false
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
