package harness

import (
	"context"
	"fmt"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/server"
)

// inside is a server that runs in the test process.
type inside struct {
	cancel context.CancelFunc
	done   chan error
}

func startInside(o server.Options) (*inside, server.Address, error) {
	s, err := server.New(o)
	if err != nil {
		return nil, server.Address{}, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	i := &inside{cancel: cancel, done: make(chan error, 1)}
	ready := make(chan server.Address, 1)
	go func() { i.done <- s.Run(ctx, func(a server.Address) { ready <- a }) }()
	timer := time.NewTimer(startTimeout)
	defer timer.Stop()
	select {
	case a := <-ready:
		return i, a, nil
	case err := <-i.done:
		cancel()
		return nil, server.Address{}, fmt.Errorf("server ended before it was ready: %w", err)
	case <-timer.C:
		cancel()
		return nil, server.Address{}, fmt.Errorf("server was not ready within %s", startTimeout)
	}
}

func (i *inside) stop() error {
	i.cancel()
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case err := <-i.done:
		return err
	case <-timer.C:
		return fmt.Errorf("server did not end within %s", stopTimeout)
	}
}

// kill is stop: nothing inside a process can be killed.
func (i *inside) kill() error { return i.stop() }
