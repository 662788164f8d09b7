package connections

import (
	"context"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	restclient "k8s.io/client-go/rest"
)

// hangUpInterval is how often HangUp closes the connections that are idle.
const hangUpInterval = 20 * time.Millisecond

// HangUp closes the connections of clients with a configuration as they become idle, from the end
// of ctx until the caller calls stop. A server that ends closes its connections to itself this way:
// net/http does not end a connection that is just being opened when the server begins to stop, and
// the connection would delay the end of the server.
func HangUp(ctx context.Context, clients *restclient.Config) (stop func(), err error) {
	// All clients of one configuration share a transport.
	transport, err := restclient.TransportFor(clients)
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
		wait.Until(func() { utilnet.CloseIdleConnectionsFor(transport) }, hangUpInterval, ended)
	})
	return func() {
		close(ended)
		closing.Wait()
	}, nil
}
