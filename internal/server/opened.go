package server

import (
	"context"
	"net"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

// opened is the first phase: etcd is open, and the address belongs to the server.
type opened struct {
	settings *settings
	listener net.Listener
	db       *database
	// ready is closed once requests are served.
	ready <-chan struct{}
	// asked ends when the server is asked to end. The server ends after its delay.
	asked context.Context
	// stopping is closed when no new requests are served, if watches have time to end then.
	stopping chan struct{}
	links    *links
	ends     *ends
}

// links are the calls from a part to a part that is made later. connect sets them, before any part
// runs.
type links struct {
	// delegated reports whether a request goes to another server. Handlers in front of the API do
	// not count such a request as one of this server.
	delegated func(context.Context, *request.RequestInfo) bool
	// manifestsChanged compiles the registrations again, including the registrations of manifest
	// files.
	manifestsChanged func()
	// read counts a read of the registrations, and announces the registrations that the engine
	// cannot use.
	read func(snapshot.Read)
	// judges returns an error while the server cannot admit writes.
	judges func() error
	// discarded calls the function of afterDelete for an object that was deleted before it was
	// initialized. This function comes from the kind of the object, and kinds are made after
	// stores.
	discarded func(schema.GroupResource, runtime.Object)
	// customChanged passes the kinds that users define now to the aggregator, discovery and
	// OpenAPI.
	customChanged func()
	// kindsChanged makes the controllers follow the kinds that are served now. The controllers are
	// made after the API.
	kindsChanged func()
}

// ends has the functions that release the resources of the parts. It is safe for concurrent use.
type ends struct {
	mu   sync.Mutex
	list []func()
}

// add adds the function that ends a part. The part must not need a part that is made later.
func (e *ends) add(end func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, end)
}

// close ends the parts, the last one first. Requests must have ended.
func (e *ends) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, end := range slices.Backward(e.list) {
		end()
	}
	e.list = nil
}
