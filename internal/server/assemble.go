package server

import (
	"context"
)

// A server is assembled in phases. Each phase is a type: it has all parts of the previous phase,
// and the parts that one function makes from these. Code that uses a part a phase too early does
// not compile. Only connect.go gives a part calls to a part of a later phase.

// assemble assembles a server. The caller closes ends, also after an error.
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
