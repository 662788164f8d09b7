package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// SchemeGroupVersion is the group and version of the kinds.
var SchemeGroupVersion = schema.GroupVersion{Group: "gatehouse.dev", Version: "v1alpha1"}

// AddToScheme makes the kinds known to a scheme. It always succeeds; its error is
// for the sake of runtime.SchemeBuilder.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(SchemeGroupVersion, &RegistrationState{}, &RegistrationStateList{}, &AdmissionExplanation{}, &AdmissionServer{}, &AdmissionServerList{})
	metav1.AddToGroupVersion(s, SchemeGroupVersion)
	return nil
}
