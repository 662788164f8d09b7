package server

import (
	"context"
	"net"
	"slices"
	"sync"
)

// A server is put together in phases. Each phase is a type: it has all parts of the phase
// before it, and the parts that one function makes out of these. Code that uses a part a phase
// too early does not compile. Only connect.go has calls from a part to a part of a later phase.

// opened is the first phase: etcd is open, and the address belongs to the server.
type opened struct {
	settings *settings
	listener net.Listener
	db       *database
	// ready is closed once requests are served.
	ready <-chan struct{}
	links *links
	ends  *ends
}

// assemble puts a server together. The caller closes ends, also after an error.
func assemble(ctx context.Context, o *opened) (*assembly, error) {
	r, err := newReachable(ctx, o)
	if err != nil {
		return nil, err
	}
	f, err := newFramed(ctx, r)
	if err != nil {
		return nil, err
	}
	j, err := newJudging(f)
	if err != nil {
		return nil, err
	}
	s, err := newStoring(j)
	if err != nil {
		return nil, err
	}
	p, err := newPopulated(s)
	if err != nil {
		return nil, err
	}
	e, err := newExposed(p)
	if err != nil {
		return nil, err
	}
	c, err := newControlled(e)
	if err != nil {
		return nil, err
	}
	a, err := newAssembly(c)
	if err != nil {
		return nil, err
	}
	connect(a)
	return a, nil
}

// ends has the functions that release what the parts hold. It is safe for concurrent use.
type ends struct {
	mu   sync.Mutex
	list []func()
}

// add adds the function that ends a part. The part must not need a part that is made after it.
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
