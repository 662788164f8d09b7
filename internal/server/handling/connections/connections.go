package connections

import (
	"net"
	"sync"
)

// Listener keeps track of the open connections that it has accepted. It is safe for concurrent use.
type Listener struct {
	net.Listener
	mu struct {
		sync.Mutex
		open map[net.Conn]bool
		// ended is set when new connections are closed at once.
		ended bool
	}
}

// New returns a Listener that wraps l.
func New(l net.Listener) *Listener {
	c := &Listener{Listener: l}
	c.mu.open = map[net.Conn]bool{}
	return c
}

// Accept implements net.Listener.
func (c *Listener) Accept() (net.Conn, error) {
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

// CloseAll closes the open connections, and each later connection when it is accepted. Running
// requests get no response, and the server does not wait for clients to hang up.
func (c *Listener) CloseAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.ended = true
	for conn := range c.mu.open {
		// The Close of connection would wait for the lock.
		conn.(*connection).Conn.Close()
	}
}

// connection is a connection that its listener tracks until it is closed.
type connection struct {
	net.Conn
	of *Listener
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.of.mu.Lock()
	delete(c.of.mu.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}
