package resources

import (
	"bytes"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/gatehouse-dev/gatehouse/internal/kit/aliases"
)

// refuses returns the error for a write whose body cannot be read; nil if it can be read. The error is
// 415 for a format that the endpoint can write but not read, 413 for aliases or paths that are too long,
// or an error about fields that the emulated release does not have (S26.13).
func (e *Endpoint) refuses(info *request.RequestInfo, req *http.Request) error {
	if err := e.boundAliases(req); err != nil {
		return err
	}
	if err := e.boundPaths(req); err != nil {
		return err
	}
	if err := e.readLater(info, req); err != nil {
		return err
	}
	if e.BodyTypes == nil || (info.Verb != "create" && info.Verb != "update") {
		return nil
	}
	contentType := req.Header.Get("Content-Type")
	if mediaType, _, err := mime.ParseMediaType(contentType); contentType == "" || (err == nil && slices.Contains(e.BodyTypes, mediaType)) {
		return nil
	}
	return negotiation.NewUnsupportedMediaTypeError(e.BodyTypes)
}

// boundAliases returns the error for a body in YAML that exceeds the limit of bodies when its aliases are expanded
// (S27.9).
func (e *Endpoint) boundAliases(req *http.Request) error {
	_, connects := e.Storage.(rest.Connecter)
	mediaType := strings.ToLower(strings.TrimSpace(mediaTypeOf(req)))
	if connects || mediaType != runtime.ContentTypeYAML && mediaType != string(types.ApplyYAMLPatchType) {
		return nil
	}
	body, err := readBody(req, e.Scope.MaxRequestBodyBytes)
	if err != nil {
		return err
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	if aliases.Check(body, e.Scope.MaxRequestBodyBytes) != nil {
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d, after aliases of the YAML are expanded", e.Scope.MaxRequestBodyBytes))
	}
	return nil
}

// mediaTypeOf is the media type of the body of a request: the text before the first semicolon, as in
// k8s.io/apiserver.
func mediaTypeOf(req *http.Request) string {
	mediaType, _, _ := strings.Cut(req.Header.Get("Content-Type"), ";")
	return mediaType
}
