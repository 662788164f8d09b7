package resources

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversionscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
)

// notServed answers a request for a resource that is not served, with the text of kube-apiserver.
func notServed(gvr schema.GroupVersionResource, w http.ResponseWriter, req *http.Request) {
	responsewriters.ErrorNegotiated(&apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusNotFound,
		Reason:  metav1.StatusReasonNotFound,
		Message: "the server could not find the requested resource",
		Details: &metav1.StatusDetails{Group: gvr.Group, Kind: gvr.Resource},
	}}, metainternalversionscheme.Codecs, schema.GroupVersion{Version: "v1"}, w, req)
}
