package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/engine/deepcopy"
)

// AdmissionTrace is the trace of the admission of one request. It is read-only. Its name is the ID
// of the trace, its namespace the namespace of the request.
type AdmissionTrace struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	metav1.ObjectMeta `json:"metadata,omitempty"`

	trace.Record `json:",inline"`
}

// AdmissionTraceList is a list of AdmissionTrace.
type AdmissionTraceList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the traces, the oldest first.
	Items []AdmissionTrace `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (t *AdmissionTrace) DeepCopyObject() runtime.Object { return deepcopy.Of(t) }

// DeepCopyObject implements runtime.Object.
func (l *AdmissionTraceList) DeepCopyObject() runtime.Object { return deepcopy.Of(l) }
