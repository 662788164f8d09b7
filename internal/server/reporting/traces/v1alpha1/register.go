package v1alpha1

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// SchemeGroupVersion is the group and version of the kinds.
var SchemeGroupVersion = schema.GroupVersion{Group: "gatehouse.dev", Version: "v1alpha1"}

// Fields are those that a field selector may name, besides metadata.name and
// metadata.namespace.
//
// auditID is the ID of the request in the audit log and in the log. webhook is the name of a webhook that was called, or of an initializer that the object
// was given or that wrote it; configuration is the name of its registration object; plugin is a plugin
// that did something. resource is the plural, or the plural and the group as in
// deployments.apps. name is that of the request's object. An = is true when one of
// several values is the one asked for, a != when none is.
var Fields = []string{"auditID", "webhook", "configuration", "plugin", "outcome", "user", "operation", "resource", "name", "dryRun"}

// AddToScheme makes the kinds known to a scheme. It always succeeds; its error is
// for the sake of runtime.SchemeBuilder.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(SchemeGroupVersion, &AdmissionTrace{}, &AdmissionTraceList{})
	metav1.AddToGroupVersion(s, SchemeGroupVersion)
	return s.AddFieldLabelConversionFunc(SchemeGroupVersion.WithKind("AdmissionTrace"), func(label, value string) (string, string, error) {
		if label == "metadata.name" || label == "metadata.namespace" || slices.Contains(Fields, label) {
			return label, value, nil
		}
		return "", "", fmt.Errorf("%q is not a field of admission traces: use metadata.name, metadata.namespace, %s", label, strings.Join(Fields, ", "))
	})
}
