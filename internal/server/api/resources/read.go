package resources

import (
	"net/http"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/gatehouse-dev/gatehouse/initialization"
)

// read puts into the context of a read what it may see of uninitialized objects.
func (h *Handler) read(info *request.RequestInfo, req *http.Request) *http.Request {
	if !h.Initializers || !initialization.Reads(info.Verb) {
		return req
	}
	reading := initialization.ReadingOf(info, req, h.Authorizer)
	if ownReader(info, req) {
		reading.Hide = false
	}
	return req.WithContext(initialization.WithReading(req.Context(), reading))
}

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
