package inside

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/server"
	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// Start runs a server in the test process and stops it at the end of the test. With -short, it skips the
// test. An empty DataDir means a temporary directory, empty Controllers mean harness.Controllers, and empty
// Features disable priority and fairness.
func Start(t testing.TB, o server.Options) *harness.Server {
	t.Helper()
	speed.Server(t)
	if o.DataDir == "" {
		o.DataDir = t.TempDir()
	}
	if o.Controllers == nil {
		o.Controllers = harness.Controllers
	}
	if o.Features == nil {
		// Package harness has the same default.
		o.Features = server.Defaults().Features
		o.Features.EnablePriorityAndFairness = false
	}
	i, address, err := start(o)
	if err != nil {
		t.Fatal(err)
	}
	return harness.Adopt(t, i, o.DataDir, address.URL, address.Kubeconfig)
}

// inside is a running server in the test process.
type inside struct {
	cancel context.CancelFunc
	done   chan error
}

func start(o server.Options) (*inside, server.Address, error) {
	s, err := server.New(o)
	if err != nil {
		return nil, server.Address{}, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	i := &inside{cancel: cancel, done: make(chan error, 1)}
	ready := make(chan server.Address, 1)
	go func() { i.done <- s.Run(ctx, func(a server.Address) { ready <- a }) }()
	timer := time.NewTimer(harness.StartTimeout)
	defer timer.Stop()
	select {
	case a := <-ready:
		return i, a, nil
	case err := <-i.done:
		cancel()
		return nil, server.Address{}, fmt.Errorf("server ended before it was ready: %w", err)
	case <-timer.C:
		cancel()
		return nil, server.Address{}, fmt.Errorf("server was not ready within %s", harness.StartTimeout)
	}
}

func (i *inside) Stop() error {
	i.cancel()
	timer := time.NewTimer(harness.StopTimeout)
	defer timer.Stop()
	select {
	case err := <-i.done:
		return err
	case <-timer.C:
		return fmt.Errorf("server did not end within %s", harness.StopTimeout)
	}
}

// Kill is Stop: a server in the test process cannot be killed.
func (i *inside) Kill() error { return i.Stop() }
