package inflight

import (
	"context"
	"net"
	"sync/atomic"
)

// maxHandshakes bounds the handshakes that are computed at once.
const maxHandshakes = 64

// Pace returns a listener for TLS that accepts every connection at once, and lets the server
// compute a few handshakes at a time. A handshake costs as much as many requests, and thousands of
// them together would delay all other work of the server; a read of etcd alone takes a dozen steps,
// each of which would wait for all of the handshakes.
//
// A connection counts from the first data of its client until the server waits for the network
// again or answers. A silent or slow client does not delay others.
func Pace(inner net.Listener) net.Listener {
	return paced{inner, &places{limit: maxHandshakes}}
}

type paced struct {
	net.Listener
	handshakes *places
}

func (p paced) Accept() (net.Conn, error) {
	conn, err := p.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &newcomer{Conn: conn, handshakes: p.handshakes}, nil
}

// newcomer is a connection whose handshake is paced. The server's first response, with its key and
// signature, is the expensive part; after it the connection is like any other.
type newcomer struct {
	net.Conn
	handshakes *places
	answered   atomic.Bool
	// works is set while the connection has a place.
	works atomic.Bool
}

func (n *newcomer) Read(b []byte) (int, error) {
	if n.answered.Load() {
		return n.Conn.Read(b)
	}
	n.release()
	count, err := n.Conn.Read(b)
	if count > 0 {
		n.work()
	}
	return count, err
}

func (n *newcomer) Write(b []byte) (int, error) {
	n.end()
	return n.Conn.Write(b)
}

func (n *newcomer) Close() error {
	n.end()
	return n.Conn.Close()
}

// work waits for a slot. Holders only use the CPU, so the wait is short.
func (n *newcomer) work() {
	n.handshakes.wait(context.Background())
	n.works.Store(true)
	if n.answered.Load() {
		// It was closed meanwhile.
		n.release()
	}
}

// release gives back the place, if there is one.
func (n *newcomer) release() {
	if n.works.CompareAndSwap(true, false) {
		n.handshakes.give()
	}
}

func (n *newcomer) end() {
	if !n.answered.Load() {
		n.answered.Store(true)
		n.release()
	}
}
