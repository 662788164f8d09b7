package resources

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"

	"github.com/gatehouse-dev/gatehouse/admission/initializers"
	"github.com/gatehouse-dev/gatehouse/server/initialization"
)

// read puts into the context of a read what it may see of uninitialized objects.
func (h *Handler) read(info *request.RequestInfo, req *http.Request) *http.Request {
	if !h.Initializers || !reads(info.Verb) {
		return req
	}
	reading := initialization.Reading{Hide: !includesUninitialized(req) && !ownReader(info, req), Repair: info.Verb == "get"}
	if reading.Hide && info.Verb == "get" {
		reading.Show = h.showing(info, req)
	}
	return req.WithContext(initialization.WithReading(req.Context(), reading))
}

func reads(verb string) bool { return verb == "get" || verb == "list" || verb == "watch" }

// ownReader reports whether the server itself reads namespaces. A namespace that is
// not initialized can be filled, by its initializers above all, and be deleted
// (S11.36).
func ownReader(info *request.RequestInfo, req *http.Request) bool {
	if info.APIGroup != "" || info.Resource != "namespaces" {
		return false
	}
	u, ok := request.UserFrom(req.Context())
	return ok && (u.GetName() == user.APIServerUser || u.GetName() == namespaceController)
}

// namespaceController is as whom the server empties namespaces.
const namespaceController = "system:serviceaccount:kube-system:namespace-controller"

// includesUninitialized reads the parameter includeUninitialized: present and
// neither 0 nor false means yes, and so does an empty value (S11.26).
func includesUninitialized(req *http.Request) bool {
	values, ok := req.URL.Query()["includeUninitialized"]
	if !ok {
		return false
	}
	return values[0] != "0" && !strings.EqualFold(values[0], "false")
}

// showing returns what decides whether a get without the parameter shows an object
// that is not initialized. It does to those who may initialize it: kubectl of the
// releases with initializers sends the parameter with lists only, and needs the
// object to describe, edit, label or apply it. They get a warning with it, since
// clients of today do not know the field. To everybody else the object is absent
// (S11.33).
func (h *Handler) showing(info *request.RequestInfo, req *http.Request) func(*initializers.Initializers) bool {
	ctx := req.Context()
	return func(field *initializers.Initializers) bool {
		if !h.mayInitialize(ctx, info) {
			return false
		}
		warning.AddWarning(ctx, "", fmt.Sprintf("%s %q is not initialized%s",
			schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}, info.Name, waitingFor(field)))
		return true
	}
}

func waitingFor(field *initializers.Initializers) string {
	if len(field.Pending) == 0 {
		return ""
	}
	return fmt.Sprintf(" and waits for initializer %q", field.Pending[0].Name)
}

func (h *Handler) mayInitialize(ctx context.Context, info *request.RequestInfo) bool {
	user, ok := request.UserFrom(ctx)
	if !ok || h.Authorizer == nil {
		return false
	}
	decision, _, err := h.Authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: user, Verb: initializers.Verb, Namespace: info.Namespace, Name: info.Name,
		APIGroup: info.APIGroup, APIVersion: info.APIVersion, Resource: info.Resource, ResourceRequest: true,
	})
	return err == nil && decision == authorizer.DecisionAllow
}
