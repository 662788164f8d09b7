package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
	"github.com/gatehouse-dev/gatehouse/internal/kit/emulation"
)

// lab starts the servers to compare.
type lab struct {
	binaries peer.Binaries
	dir      string
	// upstream leaves out Gatehouse.
	upstream bool
	// release is the release that both servers emulate; empty for none.
	release string
	// neighbours are the releases to compare with each other, the oldest first.
	neighbours []neighbour
	started    int
}

// neighbour is a release, and its kube-apiserver. If program is empty, Gatehouse emulates the release.
type neighbour struct {
	peer.Release
	program string
}

// tolerant reports whether the servers may lack features of the cases.
func (l *lab) tolerant() bool { return l.release != "" || l.neighbours != nil }

// pair is a kube-apiserver and a gatehouse. gatehouse is nil if only kube-apiserver runs. If releases are compared,
// neighbours has the servers, the oldest first, and the other fields are nil.
type pair struct {
	kube, gatehouse *session
	neighbours      []*session
	stops           []func() error
}

func (p *pair) sessions() []*session {
	switch {
	case p.neighbours != nil:
		return p.neighbours
	case p.gatehouse == nil:
		return []*session{p.kube}
	}
	return []*session{p.kube, p.gatehouse}
}

func (p *pair) stop() error {
	var errs []error
	for _, stop := range p.stops {
		errs = append(errs, stop())
	}
	p.stops = nil
	return errors.Join(errs...)
}

// start starts both servers with additional flags. If before is set, start first calls it with servers without these
// flags, and stops these servers. The objects that before created are kept.
func (l *lab) start(ctx context.Context, before func(*session) error, flags ...string) (_ *pair, err error) {
	p := &pair{}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.stop())
		}
	}()
	l.started++
	if l.neighbours != nil {
		return p, l.startNeighbours(ctx, p, before, flags)
	}
	for _, kind := range []peer.Kind{peer.KubeAPIServer, peer.Gatehouse} {
		if l.upstream && kind != peer.KubeAPIServer {
			continue
		}
		dir := filepath.Join(l.dir, fmt.Sprintf("%s-%d", kind, l.started))
		s, stop, err := l.prepared(ctx, kind, dir, before, flags...)
		if err != nil {
			return nil, err
		}
		p.stops = append(p.stops, stop)
		if kind == peer.KubeAPIServer {
			p.kube = s
		} else {
			p.gatehouse = s
		}
	}
	return p, nil
}

// prepared starts a server with additional flags, after a server without them that before used.
func (l *lab) prepared(ctx context.Context, kind peer.Kind, dir string, before func(*session) error, flags ...string) (*session, func() error, error) {
	if before != nil {
		s, stop, err := l.one(ctx, kind, dir)
		if err != nil {
			return nil, nil, err
		}
		if err := errors.Join(before(s), stop()); err != nil {
			return nil, nil, err
		}
	}
	return l.one(ctx, kind, dir, flags...)
}

// startNeighbours adds a server of each release to p.
func (l *lab) startNeighbours(ctx context.Context, p *pair, before func(*session) error, flags []string) error {
	for _, n := range l.neighbours {
		one, kind, all := *l, peer.KubeAPIServer, flags
		one.binaries.KubeAPIServer = n.program
		if n.program == "" {
			kind, all = peer.Gatehouse, append(slices.Clone(flags), "--emulated-version="+n.Minor, "--later-fields=reject")
		}
		dir := filepath.Join(l.dir, fmt.Sprintf("%s-%s-%d", kind, n.Minor, l.started))
		s, stop, err := one.prepared(ctx, kind, dir, before, all...)
		if err != nil {
			return fmt.Errorf("%s: %w", n.Minor, err)
		}
		p.stops = append(p.stops, stop)
		p.neighbours = append(p.neighbours, s)
	}
	return nil
}

// emulating returns the flags that make a server emulate the release. Without the additional flags, Gatehouse follows
// the release itself more closely than an emulating kube-apiserver (S26.1, S26.13).
func (l *lab) emulating(kind peer.Kind) []string {
	if l.release == "" {
		return nil
	}
	flags := []string{"--emulated-version=" + l.release}
	if kind != peer.Gatehouse {
		return flags
	}
	flags = append(flags, "--later-fields=keep")
	if l.release == emulation.Releases()[0] {
		flags = append(flags, "--min-compatibility-version="+l.release)
	}
	return flags
}

// one starts a server.
func (l *lab) one(ctx context.Context, kind peer.Kind, dir string, flags ...string) (*session, func() error, error) {
	audit, err := newAuditLog(dir)
	if err != nil {
		return nil, nil, err
	}
	flags = append(flags, audit.flags()...)
	flags = append(flags, l.emulating(kind)...)
	if kind == peer.Gatehouse {
		// kube-apiserver runs with this controller only.
		flags = append(flags, "--controllers=validatingadmissionpolicy-status-controller")
	}
	server, err := peer.Start(ctx, l.binaries, kind, dir, flags...)
	if err != nil {
		return nil, nil, err
	}
	stop := server.Stop
	if kind == peer.KubeAPIServer {
		checking, cancel := context.WithCancel(ctx)
		stop = func() error {
			cancel()
			return server.Stop()
		}
		if err := checkTypes(checking, server.Config); err != nil {
			return nil, nil, errors.Join(err, stop())
		}
	}
	s, err := newSession(string(kind), server.Config, audit)
	if err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	s.emulates = l.tolerant()
	return s, stop, nil
}
