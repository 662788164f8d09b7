package stack

import (
	"net/http"
	"runtime"

	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// room is what requests need: with it, their stacks are as large as they become,
// 16 KiB.
const room = 14 << 10

// Grow makes the stack of the calling goroutine as large as the handling of a
// request needs. It costs least where there is little on it.
func Grow() { reserve(false) }

// reserve grows the stack because its frame is large, whether it is used or not.
//
//go:noinline
func reserve(used bool) {
	if used {
		var space [room]byte
		runtime.KeepAlive(&space)
	}
}

// Handler returns a handler that calls next on a large stack.
func Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		Grow()
		next.ServeHTTP(w, req)
	})
}

// Creater returns a creater whose caller goes on with a large stack. The library
// handles creates in a goroutine of their own, and begins with a new object.
func Creater(c apiruntime.ObjectCreater) apiruntime.ObjectCreater { return creater{c} }

type creater struct{ apiruntime.ObjectCreater }

func (c creater) New(kind schema.GroupVersionKind) (apiruntime.Object, error) {
	Grow()
	return c.ObjectCreater.New(kind)
}
