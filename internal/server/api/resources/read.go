package resources

import (
	"net/http"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/gatehouse-dev/gatehouse/initialization"
)

// read adds to the context of a read the uninitialized objects that it may see.
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

// ownReader reports whether the server itself reads namespaces. Initializers and other clients
// can create objects in an uninitialized namespace, and the namespace can be deleted: the
// server must see it (S11.36).
func ownReader(info *request.RequestInfo, req *http.Request) bool {
	if info.APIGroup != "" || info.Resource != "namespaces" {
		return false
	}
	u, ok := request.UserFrom(req.Context())
	return ok && (u.GetName() == user.APIServerUser || u.GetName() == namespaceController)
}

// namespaceController is the user with which the server empties namespaces.
const namespaceController = "system:serviceaccount:kube-system:namespace-controller"
