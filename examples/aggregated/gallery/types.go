package gallery

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group.
const GroupName = "gallery.example.com"

// SchemeGroupVersion is the version of the internal form.
var SchemeGroupVersion = schema.GroupVersion{Group: GroupName, Version: runtime.APIVersionInternal}

// AddToScheme registers the internal form.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(SchemeGroupVersion, &Painting{}, &PaintingList{})
	return nil
}

// Painting hangs in a gallery.
type Painting struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	Spec PaintingSpec
}

// PaintingSpec describes the painting.
type PaintingSpec struct {
	Title, Artist string
	// Year is the year of the painting; 0 means that it is unknown.
	Year int32
}

// PaintingList is a list of paintings.
type PaintingList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []Painting
}

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
