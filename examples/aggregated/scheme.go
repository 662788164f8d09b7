package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/gatehouse-dev/gatehouse/examples/aggregated/gallery"
	galleryv1 "github.com/gatehouse-dev/gatehouse/examples/aggregated/gallery/v1"
	galleryv1beta1 "github.com/gatehouse-dev/gatehouse/examples/aggregated/gallery/v1beta1"
)

var (
	scheme = newScheme()
	codecs = serializer.NewCodecFactory(scheme)
)

// newScheme returns a scheme with all versions of the group and the common types of API servers.
func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(gallery.AddToScheme(s))
	utilruntime.Must(galleryv1.AddToScheme(s))
	utilruntime.Must(galleryv1beta1.AddToScheme(s))
	utilruntime.Must(s.SetVersionPriority(galleryv1.SchemeGroupVersion, galleryv1beta1.SchemeGroupVersion))
	core := schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(s, core)
	s.AddUnversionedTypes(core, &metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroupList{}, &metav1.APIGroup{}, &metav1.APIResourceList{})
	return s
}
