package resources

import (
	"mime"
	"net/http"
	"slices"

	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// refuses returns the error for a write whose body is in a form that the endpoint can write but
// not read; nil if the body can be read. The error is 415.
func (e *Endpoint) refuses(info *request.RequestInfo, req *http.Request) error {
	if e.BodyTypes == nil || (info.Verb != "create" && info.Verb != "update") {
		return nil
	}
	contentType := req.Header.Get("Content-Type")
	if mediaType, _, err := mime.ParseMediaType(contentType); contentType == "" || (err == nil && slices.Contains(e.BodyTypes, mediaType)) {
		return nil
	}
	return negotiation.NewUnsupportedMediaTypeError(e.BodyTypes)
}
