package initialization

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"

	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
)

// Includes reports whether a request asks for uninitialized objects with the parameter includeUninitialized.
// Any value except 0 and false means yes, also the empty value (S11.26).
func Includes(req *http.Request) bool {
	values, ok := req.URL.Query()["includeUninitialized"]
	if !ok {
		return false
	}
	return values[0] != "0" && !strings.EqualFold(values[0], "false")
}

// Reads reports whether requests of a verb read objects. Such requests get a Reading.
func Reads(verb string) bool { return verb == "get" || verb == "list" || verb == "watch" }

// ReadingOf returns which objects a client's read may see. A get without the parameter shows an
// uninitialized object to users that may initialize it: kubectl of the releases with initializers
// sends the parameter only with lists, and needs the object to describe, edit, label or apply it.
// These users get a warning with the object, since clients of today do not know the field. For
// all other users the object is absent (S11.33). With a nil authorizer, no user may initialize.
func ReadingOf(info *request.RequestInfo, req *http.Request, authorize authorizer.UnconditionalAuthorizer) Reading {
	reading := Reading{Hide: !Includes(req), Repair: info.Verb == "get"}
	if !reading.Hide || info.Verb != "get" {
		return reading
	}
	ctx := req.Context()
	reading.Show = func(field *initializers.Initializers) bool {
		if !mayInitialize(ctx, info, authorize) {
			return false
		}
		warning.AddWarning(ctx, "", fmt.Sprintf("%s %q is not initialized%s",
			schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}, info.Name, waitingFor(field)))
		return true
	}
	return reading
}

func waitingFor(field *initializers.Initializers) string {
	if len(field.Pending) == 0 {
		return ""
	}
	return fmt.Sprintf(" and waits for initializer %q", field.Pending[0].Name)
}

func mayInitialize(ctx context.Context, info *request.RequestInfo, authorize authorizer.UnconditionalAuthorizer) bool {
	user, ok := request.UserFrom(ctx)
	if !ok || authorize == nil {
		return false
	}
	decision, _, err := authorize.Authorize(ctx, authorizer.AttributesRecord{
		User: user, Verb: initializers.Verb, Namespace: info.Namespace, Name: info.Name,
		APIGroup: info.APIGroup, APIVersion: info.APIVersion, Resource: info.Resource, ResourceRequest: true,
	})
	return err == nil && decision == authorizer.DecisionAllow
}
