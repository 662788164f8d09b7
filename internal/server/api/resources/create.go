package resources

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/gatehouse-dev/gatehouse/initialization"
	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
	"github.com/gatehouse-dev/gatehouse/internal/server/handling/waiting"
)

// code is the status code of the response: 202 instead of 201 when the created object is
// uninitialized (S11.27).
func (c *call) code(code int) int {
	if code == http.StatusCreated && c.uninitialized {
		return http.StatusAccepted
	}
	return code
}

// counts reports whether the creator creates as many objects as it finds missing, as some
// controllers do.
func (c *call) counts() bool {
	creator, ok := request.UserFrom(c.req.Context())
	return ok && c.counting != nil && c.counting(creator.GetName())
}

// leave makes the creator wait after all handlers have returned, if that is allowed, and reports
// whether it does.
func (c *call) leave(ctx context.Context, creation *initialization.Creation) bool {
	if !c.mayLeave {
		return false
	}
	c.creation = creation
	c.deadline, _ = ctx.Deadline()
	return waiting.Leave(ctx)
}

// finish answers a create that has left the handlers, and then calls done.
func (c *call) finish(w http.ResponseWriter, req *http.Request, done func()) {
	// The variables let the rest of the call be freed.
	e, info, creation, deadline := c.Endpoint, c.info, c.creation, c.deadline
	var created runtime.Object
	var err error
	waiting.Finish(w, req, func(ctx context.Context) {
		created, err = creation.WaitUntil(ctx, deadline)
	}, func(w http.ResponseWriter, req *http.Request) (code int) {
		if done != nil {
			defer done()
		}
		return e.serveCounted(info, w, req, func(w http.ResponseWriter, req *http.Request) bool {
			e.answer(w, req, created, err)
			return true
		})
	})
}

// answer answers a create that has waited.
func (e *Endpoint) answer(w http.ResponseWriter, req *http.Request, created runtime.Object, err error) {
	gv := e.Scope.Kind.GroupVersion()
	if err != nil {
		responsewriters.ErrorNegotiated(err, e.Scope.Serializer, gv, w, req)
		return
	}
	code := http.StatusCreated
	if initializers.Has(created) {
		code = http.StatusAccepted
	}
	responsewriters.WriteObjectNegotiated(e.Scope.Serializer, e.Scope, gv, w, req, code, created, false)
}
