package resources

import (
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

// at reports whether the endpoint is served at a request's path. A RequestInfo is not enough: it is
// made without knowledge of the resources, and reads /api/v1/namespaces/a/namespaces/b as namespace
// b in namespace a. A user with all rights in a could then delete namespace b.
func (e *Endpoint) at(info *request.RequestInfo) bool {
	segments := strings.Count(strings.Trim(info.Path, "/"), "/") + 1
	// /api/VERSION or /apis/GROUP/VERSION
	segments -= 2
	if info.APIPrefix != "api" {
		segments--
		if info.APIGroup == "" {
			return false
		}
	}
	if e.Discovery.Namespaced && info.Namespace != "" {
		// namespaces/NAMESPACE
		segments -= 2
	}
	segments -= len(info.Parts)
	if e.Discovery.Namespaced && info.Namespace == "" && !e.acrossNamespaces(info) {
		return false
	}
	connecter, connects := e.Storage.(rest.Connecter)
	// The remaining segment is watch, as in /api/v1/watch/pods. It makes a request with any method
	// a watch.
	if segments != 0 && (segments != 1 || info.Verb != "watch" || connects) {
		return false
	}
	// RESOURCE/NAME/SUBRESOURCE. Only a connection may have segments after these.
	own := info.Parts[:min(len(info.Parts), 3)]
	if len(own) < len(info.Parts) {
		if !connects {
			return false
		}
		if _, more, _ := connecter.NewConnectOptions(); !more {
			return false
		}
	}
	return !slices.Contains(own, "")
}

// acrossNamespaces reports whether the endpoint of a namespaced resource is served at a path
// without a namespace: the path that lists the objects of all namespaces. Other methods get 405
// there, and 404 with custom resources. Objects of an Unplaced storage can be read by name, too.
func (e *Endpoint) acrossNamespaces(info *request.RequestInfo) bool {
	if _, unplaced := e.Storage.(Unplaced); unplaced && len(info.Parts) == 2 && info.Verb == "get" {
		return true
	}
	if _, lists := e.Storage.(rest.Lister); !lists || len(info.Parts) > 1 {
		return false
	}
	return !e.Custom || info.Verb == "list" || info.Verb == "watch"
}
