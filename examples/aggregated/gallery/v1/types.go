package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/examples/aggregated/gallery"
)

// SchemeGroupVersion is this group and version.
var SchemeGroupVersion = schema.GroupVersion{Group: gallery.GroupName, Version: "v1"}

// AddToScheme registers the kinds and their conversion to and from the internal
// form.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(SchemeGroupVersion, &Painting{}, &PaintingList{})
	metav1.AddToGroupVersion(s, SchemeGroupVersion)
	return addConversions(s)
}

// Painting hangs in a gallery.
type Painting struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Spec describes the painting.
	Spec PaintingSpec `json:"spec,omitempty"`
}

// PaintingSpec describes the painting.
type PaintingSpec struct {
	// Title is the title of the painting; it is required.
	Title string `json:"title"`
	// Artist is who painted it.
	Artist string `json:"artist,omitempty"`
	// Year is the year of the painting; 0 means that it is unknown.
	Year int32 `json:"year,omitempty"`
}

// PaintingList is a list of paintings.
type PaintingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Painting `json:"items"`
}

// OpenAPIModelName is the name of the kind in OpenAPI documents.
func (Painting) OpenAPIModelName() string { return "com.example.gallery.v1.Painting" }

// OpenAPIModelName is the name of the type in OpenAPI documents.
func (PaintingSpec) OpenAPIModelName() string { return "com.example.gallery.v1.PaintingSpec" }

// OpenAPIModelName is the name of the kind in OpenAPI documents.
func (PaintingList) OpenAPIModelName() string { return "com.example.gallery.v1.PaintingList" }

// DeepCopy returns a copy that shares nothing with p.
func (p *Painting) DeepCopy() *Painting {
	out := *p
	p.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}

// DeepCopyObject implements runtime.Object.
func (p *Painting) DeepCopyObject() runtime.Object { return p.DeepCopy() }

// DeepCopyObject implements runtime.Object.
func (l *PaintingList) DeepCopyObject() runtime.Object {
	out := *l
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	if l.Items != nil {
		out.Items = make([]Painting, len(l.Items))
		for i := range l.Items {
			out.Items[i] = *l.Items[i].DeepCopy()
		}
	}
	return &out
}
