package server

import (
	"net"
	"sync"
)

// connections are those that a listener has accepted and that are open. It is safe for
// concurrent use.
type connections struct {
	net.Listener
	mu struct {
		sync.Mutex
		open map[net.Conn]bool
		// ended is set when no more are wanted.
		ended bool
	}
}

func newConnections(l net.Listener) *connections {
	c := &connections{Listener: l}
	c.mu.open = map[net.Conn]bool{}
	return c
}

// Accept implements net.Listener.
func (c *connections) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	counted := &connection{Conn: conn, of: c}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.ended {
		conn.Close()
	}
	c.mu.open[counted] = true
	return counted, nil
}

// closeAll closes the connections, and later ones as they come. Running requests get no
// answer, and nothing waits for clients to hang up.
func (c *connections) closeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.ended = true
	for conn := range c.mu.open {
		// Its own Close would wait for the lock.
		conn.(*connection).Conn.Close()
	}
}

// connection is one that is counted until it is closed.
type connection struct {
	net.Conn
	of *connections
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.of.mu.Lock()
	delete(c.of.mu.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}
