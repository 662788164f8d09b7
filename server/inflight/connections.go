package inflight

import (
	"context"
	"net"
	"sync/atomic"
	"time"
)

const (
	// maxYoung is how many connections may be young at once, and childhood how long
	// one is young at most, so that clients that never say anything keep others
	// waiting no longer than that.
	maxYoung, childhood = 64, 100 * time.Millisecond
	// grownAfter is how often the server writes to a connection until its TLS
	// handshake is over: its hello, and what the session can be resumed by.
	grownAfter = 2
)

// Pace returns a listener that takes the connections of clients that come all at
// once a few at a time: the next one when the TLS handshakes of most others are
// over. A handshake costs as much as many requests, and thousands of them together
// would stand in front of everything that the server does for others; a read of
// etcd alone takes a dozen steps, each of which would wait for all of them. Clients
// whose connections are not taken yet wait in the listener's backlog.
func Pace(inner net.Listener) net.Listener {
	return paced{inner, &places{limit: maxYoung}}
}

type paced struct {
	net.Listener
	nursery *places
}

func (p paced) Accept() (net.Conn, error) {
	p.nursery.wait(context.Background())
	conn, err := p.Listener.Accept()
	if err != nil {
		p.nursery.give()
		return nil, err
	}
	y := &young{Conn: conn}
	y.grow = p.nursery.give
	y.timer = time.AfterFunc(childhood, y.grow)
	return y, nil
}

// young is a connection that was young at first.
type young struct {
	net.Conn
	grow   func()
	timer  *time.Timer
	writes atomic.Int32
}

func (y *young) Write(b []byte) (int, error) {
	n, err := y.Conn.Write(b)
	if y.writes.Load() < grownAfter && y.writes.Add(1) == grownAfter {
		y.end()
	}
	return n, err
}

func (y *young) Close() error {
	y.end()
	return y.Conn.Close()
}

func (y *young) end() {
	if y.timer.Stop() {
		y.grow()
	}
}
