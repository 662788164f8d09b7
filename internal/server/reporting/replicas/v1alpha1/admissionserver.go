package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/admission/announce"
	"github.com/gatehouse-dev/gatehouse/internal/engine/deepcopy"
)

// AdmissionServer is the announcement of a server that evaluates requests against the registrations
// stored here. It expires after its lifetime, unless the server writes it again.
type AdmissionServer struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// LifetimeSeconds is the lifetime of the object from its last write. It is absent when the
	// object is read.
	LifetimeSeconds int64 `json:"lifetimeSeconds,omitempty"`

	announce.Announcement `json:",inline"`
}

// AdmissionServerList is a list of AdmissionServer.
type AdmissionServerList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the servers, by name.
	Items []AdmissionServer `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (s *AdmissionServer) DeepCopyObject() runtime.Object { return deepcopy.Of(s) }

// DeepCopyObject implements runtime.Object.
func (l *AdmissionServerList) DeepCopyObject() runtime.Object { return deepcopy.Of(l) }
