package bounds

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
)

// dialed is a listener that accepts connections from a channel.
type dialed struct {
	net.Listener
	next *fake
}

func (d *dialed) Accept() (net.Conn, error) {
	if d.next == nil {
		return nil, errors.New("no client has dialed")
	}
	defer func() { d.next = nil }()
	return d.next, nil
}

// fake is a connection without a network.
type fake struct {
	net.Conn
	from   string
	closed bool
	// deadlines are the write deadlines that were set.
	deadlines []time.Time
}

func (f *fake) RemoteAddr() net.Addr { a, _ := net.ResolveTCPAddr("tcp", f.from); return a }
func (f *fake) Close() error         { f.closed = true; return nil }
func (f *fake) Write(b []byte) (int, error) {
	return len(b), nil
}
func (f *fake) SetReadDeadline(time.Time) error { return nil }
func (f *fake) SetWriteDeadline(at time.Time) error {
	f.deadlines = append(f.deadlines, at)
	return nil
}

// room is a Listener with its clients, and with a clock of its own.
type room struct {
	t *testing.T
	*Listener
	inner *dialed
	clock time.Time
	ports int
}

func newRoom(t *testing.T, limits Connections) *room {
	r := &room{t: t, inner: &dialed{}, clock: time.Unix(1000, 0), ports: 1024}
	r.Listener = NewListener(r.inner, limits)
	r.now = func() time.Time { return r.clock }
	return r
}

// dial connects from an address, a millisecond after the previous connection.
func (r *room) dial(address string) (*fake, net.Conn) {
	r.t.Helper()
	r.ports++
	r.clock = r.clock.Add(time.Millisecond)
	f := &fake{from: net.JoinHostPort(address, fmt.Sprint(r.ports))}
	r.inner.next = f
	c, err := r.Accept()
	if (err != nil) != f.closed {
		r.t.Fatalf("%s: %v", f.from, err)
	}
	return f, c
}

func (r *room) authenticate(f *fake) { r.Authenticated(f.from) }

// open counts the open connections.
func open(list []*fake) (n int) {
	for _, f := range list {
		if !f.closed {
			n++
		}
	}
	return n
}

// few are small limits.
var few = Connections{PerAddress: 8, Total: 40, Reserve: 10}

// One address has a bounded number of anonymous connections, and others connect meanwhile.
func TestOneAddressHoldsFewConnections(t *testing.T) {
	r := newRoom(t, few)
	server, _ := r.dial("127.0.0.1")
	r.authenticate(server)
	var attack []*fake
	for range 1040 {
		f, _ := r.dial("127.0.0.9")
		attack = append(attack, f)
	}
	if n := open(attack); n != few.PerAddress || attack[len(attack)-1].closed {
		t.Errorf("one address has %d connections open, want the last %d", n, few.PerAddress)
	}
	probe, _ := r.dial("127.0.0.2")
	again, _ := r.dial("127.0.0.1")
	if server.closed || probe.closed || again.closed {
		t.Errorf("closed: the API server %t, a probe %t, the API server's next connection %t", server.closed, probe.closed, again.closed)
	}
}

// Many addresses together leave room for each other, and for known addresses.
func TestManyAddressesLeaveRoom(t *testing.T) {
	r := newRoom(t, few)
	server, _ := r.dial("127.0.0.1")
	r.authenticate(server)
	var attack []*fake
	for i := range 1040 {
		f, _ := r.dial(fmt.Sprintf("127.0.1.%d", i%50))
		attack = append(attack, f)
	}
	if n := open(attack); n != few.Total-few.Reserve {
		t.Errorf("unknown addresses have %d connections, want %d", n, few.Total-few.Reserve)
	}
	probe, _ := r.dial("127.0.0.2")
	if probe.closed || server.closed {
		t.Errorf("closed: a probe %t, the API server %t", probe.closed, server.closed)
	}
	var known []*fake
	for range few.PerAddress {
		f, _ := r.dial("127.0.0.1")
		known = append(known, f)
	}
	if n := open(known); n != few.PerAddress {
		t.Errorf("a known address has %d connections of %d", n, few.PerAddress)
	}
	// The address is forgotten, so its new connections count like the attacker's.
	r.clock = r.clock.Add(knownFor + time.Minute)
	for range 100 {
		r.dial("127.0.0.3")
	}
	late, _ := r.dial("127.0.0.1")
	if c, ok := r.remote.Load(late.from); ok && !c.(*connection).unknown {
		t.Error("an address is known forever")
	}
}

// An attacker behind the address of the API server does not end its connections.
func TestAnAttackBehindAKnownAddress(t *testing.T) {
	r := newRoom(t, few)
	server, _ := r.dial("127.0.0.1")
	r.authenticate(server)
	for range 1040 {
		r.dial("127.0.0.1")
	}
	next, _ := r.dial("127.0.0.1")
	r.authenticate(next)
	if server.closed || next.closed {
		t.Errorf("closed: the first connection %t, the second one %t", server.closed, next.closed)
	}
}

// A client with credentials holds no more than the total, and its idle connections end first.
func TestAuthenticatedConnectionsAreBounded(t *testing.T) {
	r := newRoom(t, few)
	server, _ := r.dial("127.0.0.1")
	r.authenticate(server)
	var own []*fake
	for range 200 {
		f, _ := r.dial("127.0.0.9")
		r.authenticate(f)
		own = append(own, f)
	}
	if n := open(own); n != few.Total-1 || !own[0].closed || own[199].closed {
		t.Errorf("%d connections are open, the first one %t", n, !own[0].closed)
	}
	// A request keeps a connection open.
	r.clock = r.clock.Add(time.Minute)
	r.authenticate(own[161])
	r.authenticate(own[162])
	f, _ := r.dial("127.0.0.9")
	r.authenticate(f)
	if own[161].closed || own[162].closed || !own[163].closed || server.closed {
		t.Error("another connection than the one that has been idle longest is closed")
	}
}

// Without a total, as for a server, young connections of clients that connect at once are not closed.
func TestYoungConnectionsStay(t *testing.T) {
	limits := Connections{PerAddress: 8, Young: time.Second}
	r := newRoom(t, limits)
	var list []*fake
	for range 100 {
		f, _ := r.dial("127.0.0.1")
		list = append(list, f)
	}
	if n := open(list); n != 100 {
		t.Errorf("%d of 100 connections are open", n)
	}
	r.authenticate(list[0])
	r.clock = r.clock.Add(time.Second)
	f, _ := r.dial("127.0.0.1")
	if list[0].closed || !list[1].closed || f.closed {
		t.Errorf("closed: an authenticated connection %t, the oldest anonymous one %t, the new one %t", list[0].closed, list[1].closed, f.closed)
	}
}

// A closed connection no longer counts, however it was closed.
func TestEndedConnectionsDoNotCount(t *testing.T) {
	r := newRoom(t, few)
	for i := range 500 {
		f, c := r.dial(fmt.Sprintf("127.0.1.%d", i%50))
		if f.closed {
			t.Fatalf("connection %d is closed", i)
		}
		if i%2 == 0 {
			r.authenticate(f)
		}
		c.Close()
		c.Close()
	}
	n := 0
	r.remote.Range(func(any, any) bool { n++; return true })
	if r.total != 0 || r.unknown != 0 || len(r.open) != 0 || n != 0 {
		t.Errorf("%d connections, %d of unknown addresses, %d addresses and %d names are left", r.total, r.unknown, len(r.open), n)
	}
}

// The addresses of an IPv6 network count together. The number of known addresses is bounded.
func TestAddresses(t *testing.T) {
	for _, c := range []struct{ a, b string }{{"[2001:db8::1]:1", "[2001:db8::ffff:2]:2"}, {"[::ffff:192.0.2.1]:1", "192.0.2.1:2"}, {"[fe80::1%eth0]:1", "[fe80::2%eth1]:1"}} {
		if addressOf(c.a) != addressOf(c.b) {
			t.Errorf("%s and %s are two addresses", c.a, c.b)
		}
	}
	for _, c := range []struct{ a, b string }{{"[2001:db8::1]:1", "[2001:db8:0:1::1]:1"}, {"192.0.2.1:1", "192.0.2.2:1"}} {
		if addressOf(c.a) == addressOf(c.b) {
			t.Errorf("%s and %s are one address", c.a, c.b)
		}
	}
	r := newRoom(t, Connections{PerAddress: 8, Total: 1 << 20})
	for i := range maxKnown + 100 {
		f, _ := r.dial(fmt.Sprintf("10.0.%d.%d", i/250, i%250))
		r.authenticate(f)
	}
	if _, ok := r.known[addressOf("10.0.0.0:1")]; len(r.known) != maxKnown || ok {
		t.Errorf("%d addresses are known, the first one among them: %t", len(r.known), ok)
	}
}

// Anonymous users and failures do not make an address known.
func TestWhoIsAuthenticated(t *testing.T) {
	for name, c := range map[string]struct {
		user string
		ok   bool
		err  error
		want bool
	}{
		"a user": {"anna", true, nil, true}, "anonymous": {user.Anonymous, true, nil, false}, "nobody": {"", false, nil, false}, "an error": {"anna", true, errors.New("expired"), false},
	} {
		r := newRoom(t, few)
		f, _ := r.dial("127.0.0.1")
		a := r.Authenticator(authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
			return &authenticator.Response{User: &user.DefaultInfo{Name: c.user}}, c.ok, c.err
		}))
		if _, ok, err := a.AuthenticateRequest(&http.Request{RemoteAddr: f.from}); ok != c.ok || !errors.Is(err, c.err) {
			t.Errorf("%s: %t, %v", name, ok, err)
		}
		if len(r.known) == 1 != c.want {
			t.Errorf("%s: the address is known: %t", name, !c.want)
		}
	}
}

// Each write ends within its limit, and within the server's limit for the whole response.
func TestWritesAreBounded(t *testing.T) {
	r := newRoom(t, Connections{PerAddress: 8, Write: time.Hour})
	f, c := r.dial("127.0.0.1")
	last := func() time.Duration { return time.Until(f.deadlines[len(f.deadlines)-1]).Round(time.Minute) }
	write := func() {
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if write(); last() != time.Hour {
		t.Errorf("a write has %s", last())
	}
	_ = c.SetWriteDeadline(time.Now().Add(time.Minute))
	if write(); last() != time.Minute {
		t.Errorf("a write of a response with a minute has %s", last())
	}
	_ = c.SetDeadline(time.Now().Add(3 * time.Hour))
	if write(); last() != time.Hour {
		t.Errorf("a write of a response with three hours has %s", last())
	}
	_ = c.SetWriteDeadline(time.Time{})
	if write(); last() != time.Hour {
		t.Errorf("a write without another bound has %s", last())
	}
}
