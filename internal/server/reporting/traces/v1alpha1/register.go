package v1alpha1

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
)

// SchemeGroupVersion is the group and version of the kinds.
var SchemeGroupVersion = schema.GroupVersion{Group: "gatehouse.dev", Version: "v1alpha1"}

// AddToScheme makes the kinds known to a scheme. It always succeeds; its error is
// for the sake of runtime.SchemeBuilder.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(SchemeGroupVersion, &AdmissionTrace{}, &AdmissionTraceList{})
	metav1.AddToGroupVersion(s, SchemeGroupVersion)
	return s.AddFieldLabelConversionFunc(SchemeGroupVersion.WithKind("AdmissionTrace"), func(label, value string) (string, string, error) {
		if label == "metadata.name" || label == "metadata.namespace" || slices.Contains(trace.Fields, label) {
			return label, value, nil
		}
		return "", "", fmt.Errorf("%q is not a field of admission traces: use metadata.name, metadata.namespace, %s", label, strings.Join(trace.Fields, ", "))
	})
}
