package server

import (
	"context"
	"errors"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	restclient "k8s.io/client-go/rest"
)

const (
	// shutdownTimeout bounds how long connections may hold up a server that is to
	// end. Requests have a time of their own; creators that wait for initializers get
	// their answer after lastWait.
	shutdownTimeout = 10 * time.Second
	// hangUpInterval is how often the server then closes what it does not use.
	hangUpInterval = 20 * time.Millisecond
)

// startError returns what Run says of an error of its start: nothing when the server was
// ended meanwhile, which is not a fault.
func startError(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), context.Canceled) {
		return nil
	}
	return err
}

// hangUp closes the server's connections to itself as they become idle, from the end
// of ctx until the function that it returns is called. A connection that is just being
// opened when the server begins to stop is not told of it by net/http, and would hold
// the server up until shutdownTimeout.
func (l *loopback) hangUp(ctx context.Context) (stop func(), err error) {
	// All clients of the loopback configuration share one transport.
	transport, err := restclient.TransportFor(l.config)
	if err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	var closing sync.WaitGroup
	closing.Go(func() {
		select {
		case <-ctx.Done():
		case <-ended:
			return
		}
		tick := time.NewTicker(hangUpInterval)
		defer tick.Stop()
		for {
			utilnet.CloseIdleConnectionsFor(transport)
			select {
			case <-tick.C:
			case <-ended:
				return
			}
		}
	})
	return func() {
		close(ended)
		closing.Wait()
	}, nil
}
