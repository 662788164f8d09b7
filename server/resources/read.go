package resources

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/gatehouse-dev/gatehouse/admission/initializers"
	"github.com/gatehouse-dev/gatehouse/server/initialization"
)

// read puts into the context of a read what it may see of uninitialized objects.
func (h *Handler) read(info *request.RequestInfo, req *http.Request) *http.Request {
	if !h.Initializers || !reads(info.Verb) {
		return req
	}
	ctx := initialization.WithReading(req.Context(), initialization.Reading{
		Hide: !includesUninitialized(req) && !ownReader(info, req), Mend: info.Verb == "get",
	})
	return req.WithContext(ctx)
}

func reads(verb string) bool { return verb == "get" || verb == "list" || verb == "watch" }

// ownReader tells whether the server itself reads namespaces. A namespace that is
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

// hinting is a storage that tells those who may initialize an object that it is
// there, when it is hidden. To everybody else it is absent (S11.33).
type hinting struct {
	rest.Getter
	authorizer authorizer.UnconditionalAuthorizer
	info       *request.RequestInfo
}

func (g hinting) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	obj, err := g.Getter.Get(ctx, name, options)
	status := (*apierrors.StatusError)(nil)
	if err == nil || !errors.As(err, &status) || !apierrors.IsNotFound(err) {
		return obj, err
	}
	hidden := initialization.Hidden(ctx)
	if hidden == nil || !g.mayInitialize(ctx, name) {
		return nil, err
	}
	told := *status
	told.ErrStatus.Message += fmt.Sprintf(": it is not initialized%s; the parameter includeUninitialized=true shows it", waitingFor(hidden))
	return nil, &told
}

func waitingFor(field *initializers.Initializers) string {
	if len(field.Pending) == 0 {
		return ""
	}
	return fmt.Sprintf(" and waits for initializer %q", field.Pending[0].Name)
}

func (g hinting) mayInitialize(ctx context.Context, name string) bool {
	user, ok := request.UserFrom(ctx)
	if !ok || g.authorizer == nil {
		return false
	}
	decision, _, err := g.authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: user, Verb: initializers.Verb, Namespace: g.info.Namespace, Name: name,
		APIGroup: g.info.APIGroup, APIVersion: g.info.APIVersion, Resource: g.info.Resource, ResourceRequest: true,
	})
	return err == nil && decision == authorizer.DecisionAllow
}
