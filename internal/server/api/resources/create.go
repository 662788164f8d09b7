package resources

import (
	"context"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/gatehouse-dev/gatehouse/initialization"
	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
	"github.com/gatehouse-dev/gatehouse/internal/server/handling/inflight"
	"github.com/gatehouse-dev/gatehouse/internal/server/handling/waiting"
)

// code is that of the answer: 202 where the library says 201 and the object that was
// created is uninitialized (S11.27).
func (c *call) code(code int) int {
	if code == http.StatusCreated && c.uninitialized {
		return http.StatusAccepted
	}
	return code
}

// waitingCreater is a storage whose creates wait until the object is initialized
// (S11.24), after the server's handlers have returned if that is possible.
type waitingCreater struct {
	rest.Creater
	call *call
}

func (w waitingCreater) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	creation := &initialization.Creation{}
	created, err := w.Creater.Create(initialization.WithCreation(ctx, creation), obj, validate, options)
	if err != nil {
		return nil, err
	}
	if creation.Waits() {
		if w.call.counts() {
			creation.TakeStored(created)
		}
		if w.call.leave(ctx, creation) {
			return nil, waiting.ErrLeft
		}
		// The requests of initializers need places.
		inflight.Yield(ctx)
	}
	return creation.Wait(ctx, created)
}

// counts reports whether the creator creates as many objects as it finds missing, as some
// controllers do.
func (c *call) counts() bool {
	creator, ok := request.UserFrom(c.req.Context())
	return ok && c.counting != nil && c.counting(creator.GetName())
}

// leave has the creator wait after all handlers have returned, if that is allowed, and reports
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

// notingCreater is a storage that notes whether what it created is uninitialized. It returns bare
// objects where the client may only get those.
type notingCreater struct {
	rest.Creater
	call *call
}

func (n notingCreater) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	created, err := n.Creater.Create(ctx, obj, validate, options)
	n.call.uninitialized = err == nil && initializers.Has(created)
	if n.call.bare {
		created = bare(created)
	}
	return created, err
}
