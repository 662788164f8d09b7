package inflight

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// clients is a listener with the clients that are sent to it.
type clients chan net.Conn

func (c clients) Accept() (net.Conn, error) {
	conn, ok := <-c
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (c clients) Close() error   { close(c); return nil }
func (c clients) Addr() net.Addr { return nil }

// crowd is a paced listener and both ends of its connections.
type crowd struct {
	t        *testing.T
	clients  clients
	listener net.Listener
	// servers and peers are the ends of connections, by number.
	servers, peers []net.Conn
	// computing counts the reads that have returned.
	computing atomic.Int64
}

// join connects clients, and fails the test unless all connections are accepted at once.
func (c *crowd) join(n int) {
	c.t.Helper()
	for range n {
		server, peer := net.Pipe()
		c.clients <- server
		conn, err := c.listener.Accept()
		if err != nil {
			c.t.Fatal(err)
		}
		c.servers, c.peers = append(c.servers, conn), append(c.peers, peer)
	}
}

// say makes a client send data, which the server reads.
func (c *crowd) say(i int) {
	go c.peers[i].Write([]byte{22})
	go func() {
		if n, _ := c.servers[i].Read(make([]byte, 100)); n > 0 {
			c.computing.Add(1)
		}
	}()
}

// check checks how many more reads have returned.
func (c *crowd) check(when string, want int64) {
	c.t.Helper()
	synctest.Wait()
	if got := c.computing.Swap(0); got != want {
		c.t.Errorf("%s: the server computes %d more handshakes, want %d", when, got, want)
	}
}

// The server accepts all connections at once, and computes a few handshakes at a time. A handshake
// takes a slot only when its client has sent data, and only while the server neither reads nor has
// answered.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{t: t, clients: make(clients, 1)}
		c.listener = Pace(c.clients)
		const silent = 10 * maxHandshakes
		c.join(silent)
		for i := range silent {
			go c.servers[i].Read(make([]byte, 1))
		}
		c.join(maxHandshakes + 5)
		talking := func(i int) int { return silent + i }
		for i := range maxHandshakes + 5 {
			c.say(talking(i))
			if i < maxHandshakes {
				// This makes the server serve the first connections first.
				synctest.Wait()
			}
		}
		c.check("many come at once", maxHandshakes)

		go io.Copy(io.Discard, c.peers[talking(0)])
		if _, err := c.servers[talking(0)].Write([]byte{22}); err != nil {
			t.Fatal(err)
		}
		c.check("one is answered", 1)
		c.say(talking(0))
		c.check("one that is answered says more", 1)

		c.servers[talking(1)].Close()
		c.check("one is closed", 1)
		c.servers[talking(1)].Close()
		c.check("it is closed again", 0)

		go c.servers[talking(2)].Read(make([]byte, 1))
		c.check("one said half of it", 1)

		// Two connections wait. One of them is closed, and takes no slot.
		before, _ := c.listener.(paced).handshakes.count()
		for _, conn := range append(c.servers, c.peers...) {
			conn.Close()
		}
		synctest.Wait()
		taken, waiting := c.listener.(paced).handshakes.count()
		if before != maxHandshakes || taken != 0 || waiting != 0 {
			t.Errorf("%d places were taken; when all are closed %d are, and %d wait", before, taken, waiting)
		}
		c.listener.Close()
		if _, err := c.listener.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("after the end: %v", err)
		}
	})
}
