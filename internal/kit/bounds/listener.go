package bounds

import (
	"container/list"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Connections bounds the connections to a listener. A connection is anonymous until one of its requests has
// authenticated. An address is known for some minutes after a request from it has authenticated. IPv6 addresses count
// by their /64 prefix.
type Connections struct {
	// PerAddress bounds the anonymous connections of an address.
	PerAddress int
	// Total bounds all connections; 0 means no bound. Reserve is the part of Total that only authenticated connections
	// and known addresses can use.
	Total, Reserve int
	// Young is the age below which an anonymous connection is not closed in favor of another connection of its address.
	// Many clients behind one address may connect at once, after a restart of the server.
	Young time.Duration
	// Write bounds the time in which a client must receive each part of a response; 0 means no bound.
	Write time.Duration
}

const (
	// knownFor is how long an address is known after a request from it has authenticated.
	knownFor = 10 * time.Minute
	// maxKnown bounds the number of known addresses.
	maxKnown = 4096
	// refresh is the interval in which authenticated requests of one connection are recorded.
	refresh = 10 * time.Second
)

// Listener accepts connections within bounds. At a bound it closes a connection of the address with the most
// connections in favor of the new one: the oldest anonymous connection, or otherwise the authenticated connection that
// has been idle longest. If the new connection belongs to that address, and the address has nothing to close, it closes
// the new connection.
type Listener struct {
	net.Listener
	limits Connections
	now    func() time.Time
	// remote has the open connections by their remote addresses.
	remote sync.Map

	mu sync.Mutex
	// open has the addresses with open connections.
	open map[netip.Addr]*client
	// known has, for each known address, the time when it is no longer known.
	known map[netip.Addr]time.Time
	// total counts all connections, unknown the anonymous connections whose addresses were not known when they
	// connected.
	total, unknown int
}

// client is an address with its open connections, as *connection. At the front are the oldest anonymous connection, and
// the authenticated connection with the oldest last request.
type client struct {
	anonymous, authenticated list.List
}

// NewListener returns a Listener around another one.
func NewListener(inner net.Listener, limits Connections) *Listener {
	return &Listener{Listener: inner, limits: limits, now: time.Now, open: map[netip.Addr]*client{}, known: map[netip.Addr]time.Time{}}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		inner, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &connection{Conn: inner, of: l, address: addressOf(inner.RemoteAddr().String()), since: l.now()}
		closed := l.admit(c)
		if closed != nil {
			closed.Conn.Close()
		}
		if closed != c {
			return c, nil
		}
	}
}

// admit adds a connection. It returns the connection to close, which may be the new one; nil if there is room.
func (l *Listener) admit(c *connection) (closed *connection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.open[c.address]
	if own == nil {
		own = &client{}
		l.open[c.address] = own
	}
	c.unknown = l.known[c.address].Before(c.since)
	c.place = own.anonymous.PushBack(c)
	l.total++
	if c.unknown {
		l.unknown++
	}
	switch {
	case own.anonymous.Len() > l.limits.PerAddress:
		if oldest := own.anonymous.Front().Value.(*connection); c.since.Sub(oldest.since) >= l.limits.Young {
			closed = oldest
		}
	case l.limits.Total == 0:
	case c.unknown && l.unknown > l.limits.Total-l.limits.Reserve:
		closed = l.heaviest(func(of *client) (int, *list.Element) {
			if first := of.anonymous.Front(); first != nil && first.Value.(*connection).unknown {
				return of.anonymous.Len(), first
			}
			return 0, nil
		})
	case l.total > l.limits.Total:
		closed = l.heaviest(func(of *client) (int, *list.Element) {
			first := of.anonymous.Front()
			if oldest := of.authenticated.Front(); oldest != nil && (first == nil || first.Value == c) {
				first = oldest
			}
			return of.anonymous.Len() + of.authenticated.Len(), first
		})
	}
	if closed != nil {
		l.remove(closed)
	}
	if closed != c {
		l.remote.Store(c.RemoteAddr().String(), c)
	}
	return closed
}

// heaviest returns the connection to close of the address with the most connections; among several such addresses, it
// returns the oldest connection. of returns the number of connections of an address, and its connection to close.
func (l *Listener) heaviest(of func(*client) (int, *list.Element)) (victim *connection) {
	most := 1
	for _, each := range l.open {
		n, first := of(each)
		if n < most {
			continue
		}
		if candidate := first.Value.(*connection); n > most || victim == nil || candidate.since.Before(victim.since) {
			most, victim = n, candidate
		}
	}
	return victim
}

// remove removes a connection from the counts, if it is still counted.
func (l *Listener) remove(c *connection) {
	if c.place == nil {
		return
	}
	own := l.open[c.address]
	if c.authenticated {
		own.authenticated.Remove(c.place)
	} else {
		own.anonymous.Remove(c.place)
		if c.unknown {
			l.unknown--
		}
	}
	c.place = nil
	l.total--
	if own.anonymous.Len()+own.authenticated.Len() == 0 {
		delete(l.open, c.address)
	}
	l.remote.Delete(c.RemoteAddr().String())
}

// Authenticated records that a request from a remote address, HOST:PORT, has authenticated.
func (l *Listener) Authenticated(remote string) {
	found, ok := l.remote.Load(remote)
	if !ok {
		return
	}
	c, now := found.(*connection), l.now()
	if last := c.noted.Load(); last != 0 && now.UnixNano()-last < int64(refresh) {
		return
	}
	c.noted.Store(now.UnixNano())
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.place == nil {
		return
	}
	own := l.open[c.address]
	if c.authenticated {
		own.authenticated.MoveToBack(c.place)
	} else {
		own.anonymous.Remove(c.place)
		if c.unknown {
			l.unknown--
		}
		c.authenticated, c.place = true, own.authenticated.PushBack(c)
	}
	if _, had := l.known[c.address]; !had && len(l.known) >= maxKnown {
		l.forget(now)
	}
	l.known[c.address] = now.Add(knownFor)
}

// forget removes the addresses that are no longer known; if there are none, the address known longest.
func (l *Listener) forget(now time.Time) {
	var first netip.Addr
	for address, until := range l.known {
		if until.Before(now) {
			delete(l.known, address)
		} else if !first.IsValid() || until.Before(l.known[first]) {
			first = address
		}
	}
	if len(l.known) >= maxKnown {
		delete(l.known, first)
	}
}

// Authenticator returns an authenticator that records the requests that a authenticates. Anonymous users do not count.
func (l *Listener) Authenticator(a authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		r, ok, err := a.AuthenticateRequest(req)
		if ok && err == nil && r.User.GetName() != user.Anonymous {
			l.Authenticated(req.RemoteAddr)
		}
		return r, ok, err
	})
}

// addressOf returns the address that a connection counts for.
func addressOf(remote string) netip.Addr {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Addr{}
	}
	address := at.Addr().Unmap().WithZone("")
	if address.Is6() {
		prefix, _ := address.Prefix(64)
		return prefix.Addr()
	}
	return address
}

// connection is a connection that its listener counts until it is closed.
type connection struct {
	net.Conn
	of      *Listener
	address netip.Addr
	since   time.Time
	// unknown reports whether the address was not known when the connection was accepted.
	unknown bool
	// place is the element of its list; nil after the connection ended. authenticated tells in which list it is.
	place         *list.Element
	authenticated bool
	// noted is the time of the last request that was recorded as authenticated, in Unix nanoseconds.
	noted atomic.Int64
	// deadline is the server's write deadline, in Unix nanoseconds; 0 means no bound.
	deadline atomic.Int64
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.of.mu.Lock()
	c.of.remove(c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// SetWriteDeadline implements net.Conn.
func (c *connection) SetWriteDeadline(at time.Time) error {
	if at.IsZero() {
		c.deadline.Store(0)
	} else {
		c.deadline.Store(at.UnixNano())
	}
	return c.Conn.SetWriteDeadline(at)
}

// SetDeadline implements net.Conn.
func (c *connection) SetDeadline(at time.Time) error {
	if err := c.SetWriteDeadline(at); err != nil {
		return err
	}
	return c.SetReadDeadline(at)
}

// Write implements net.Conn.
func (c *connection) Write(b []byte) (int, error) {
	if c.of.limits.Write > 0 {
		end := time.Now().Add(c.of.limits.Write)
		if at := c.deadline.Load(); at == 0 || at > end.UnixNano() {
			if err := c.Conn.SetWriteDeadline(end); err != nil {
				return 0, err
			}
		}
	}
	return c.Conn.Write(b)
}
