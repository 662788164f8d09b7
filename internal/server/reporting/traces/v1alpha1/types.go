package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
)

// AdmissionTrace is what admission did with one request. It can be read only. Its name is
// the ID of the trace, its namespace that of the request.
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
func (t *AdmissionTrace) DeepCopyObject() runtime.Object {
	out := &AdmissionTrace{}
	t.DeepCopyInto(out)
	return out
}

// DeepCopyInto copies the trace to out.
func (t *AdmissionTrace) DeepCopyInto(out *AdmissionTrace) {
	out.TypeMeta = t.TypeMeta
	t.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	t.Record.DeepCopyInto(&out.Record)
}

// DeepCopyObject implements runtime.Object.
func (l *AdmissionTraceList) DeepCopyObject() runtime.Object {
	out := &AdmissionTraceList{TypeMeta: l.TypeMeta}
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	if l.Items != nil {
		out.Items = make([]AdmissionTrace, len(l.Items))
		for i := range l.Items {
			l.Items[i].DeepCopyInto(&out.Items[i])
		}
	}
	return out
}
