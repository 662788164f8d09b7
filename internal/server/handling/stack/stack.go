package stack

import (
	"net/http"
	"runtime"

	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// room is how much stack the handling of a request needs, and part how much a part of it needs, in bytes. With them,
// stacks have their final size at once, 32 and 16 KiB.
const room, part = 24 << 10, 12 << 10

// Grow makes the stack of the calling goroutine as large as the handling of a
// request needs. It costs least where little of the stack is used.
func Grow() { reserve(false) }

// GrowPart makes the stack of the calling goroutine as large as a part of the handling of a request needs: the
// handlers before the time limit, or a read of etcd.
func GrowPart() { reservePart(false) }

// reserve grows the stack because its frame is large, whether the space is used or not.
//
//go:noinline
func reserve(used bool) {
	if used {
		var space [room]byte
		runtime.KeepAlive(&space)
	}
}

// reservePart does the same with a smaller frame.
//
//go:noinline
func reservePart(used bool) {
	if used {
		var space [part]byte
		runtime.KeepAlive(&space)
	}
}

// Handler returns a handler that calls next on a large stack.
func Handler(next http.Handler) http.Handler { return after(Grow, next) }

// PartHandler returns a handler that calls next on a stack for a part of a request.
func PartHandler(next http.Handler) http.Handler { return after(GrowPart, next) }

func after(grow func(), next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		grow()
		next.ServeHTTP(w, req)
	})
}

// Creater returns a creater that gives its caller a large stack. k8s.io/apiserver handles a create
// in a goroutine of its own, and first calls New there.
func Creater(c apiruntime.ObjectCreater) apiruntime.ObjectCreater { return creater{c} }

type creater struct{ apiruntime.ObjectCreater }

func (c creater) New(kind schema.GroupVersionKind) (apiruntime.Object, error) {
	Grow()
	return c.ObjectCreater.New(kind)
}
