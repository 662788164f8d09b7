package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// SchemeGroupVersion is the group and version of the kinds.
var SchemeGroupVersion = schema.GroupVersion{Group: "admissionregistration.k8s.io", Version: "v1alpha1"}

// AddToScheme adds the kinds to a scheme. It always succeeds; runtime.SchemeBuilder requires the
// error.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(SchemeGroupVersion,
		&InitializerConfiguration{},
		&InitializerConfigurationList{},
		&ExternalAdmissionHookConfiguration{},
		&ExternalAdmissionHookConfigurationList{},
	)
	metav1.AddToGroupVersion(s, SchemeGroupVersion)
	return nil
}
