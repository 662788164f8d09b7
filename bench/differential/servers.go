package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

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
	started int
}

// pair is a kube-apiserver and a gatehouse. gatehouse is nil if only kube-apiserver runs.
type pair struct {
	kube, gatehouse *session
	stops           []func() error
}

func (p *pair) sessions() []*session {
	if p.gatehouse == nil {
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
	for _, kind := range []peer.Kind{peer.KubeAPIServer, peer.Gatehouse} {
		if l.upstream && kind != peer.KubeAPIServer {
			continue
		}
		dir := filepath.Join(l.dir, fmt.Sprintf("%s-%d", kind, l.started))
		if before != nil {
			s, stop, err := l.one(ctx, kind, dir)
			if err != nil {
				return nil, err
			}
			if err := errors.Join(before(s), stop()); err != nil {
				return nil, err
			}
		}
		s, stop, err := l.one(ctx, kind, dir, flags...)
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
	s.emulates = l.release != ""
	return s, stop, nil
}
