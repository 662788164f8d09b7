package harness

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// EtcdCluster is an etcd cluster with one process per member. Clients need TLS and a certificate.
type EtcdCluster struct {
	Members []*EtcdMember
	// Flags are the flags of gatehouse serve for TLS to the cluster, without --etcd-servers.
	Flags []string

	http *http.Client
}

// EtcdMember is a member of an EtcdCluster.
type EtcdMember struct {
	// Address is HOST:PORT for clients.
	Address string

	args    []string
	process *process
}

var memberReady = regexp.MustCompile(`^etcd is ready at https://(\S+)$`)

// StartEtcdCluster starts an empty cluster and stops it at the end of the test.
func StartEtcdCluster(t testing.TB, size int) *EtcdCluster {
	t.Helper()
	speed.Server(t)
	dir := t.TempDir()
	authority := NewAuthority(t, "etcd")
	write := func(name string, data []byte) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	ca := write("ca.crt", authority.Bundle)
	serverCert, serverKey := authority.Pair(t, "127.0.0.1")
	cert, key := write("server.crt", serverCert), write("server.key", serverKey)
	clientCert, clientKey := authority.Pair(t, "gatehouse")
	c := &EtcdCluster{Flags: []string{
		"--etcd-cafile", ca, "--etcd-certfile", write("client.crt", clientCert), "--etcd-keyfile", write("client.key", clientKey),
	}}
	pair, err := tls.X509KeyPair(clientCert, clientKey)
	if err != nil {
		t.Fatal(err)
	}
	c.http = &http.Client{Timeout: time.Second, Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: authority.Pool(), Certificates: []tls.Certificate{pair}},
		DisableKeepAlives: true,
	}}
	addresses := free(t, 2*size)
	var all []string
	for i := range size {
		all = append(all, fmt.Sprintf("m%d=http://%s", i, addresses[i]))
	}
	for i := range size {
		m := &EtcdMember{Address: addresses[size+i]}
		m.args = []string{
			"-name", fmt.Sprintf("m%d", i), "-cluster", strings.Join(all, ","), "-ca", ca, "-cert", cert, "-key", key,
			filepath.Join(dir, fmt.Sprintf("m%d", i)), m.Address,
		}
		c.Members = append(c.Members, m)
	}
	t.Cleanup(func() {
		for _, m := range c.Members {
			if m.process != nil {
				_ = m.process.Kill()
			}
		}
	})
	// A member becomes ready when a majority runs.
	var starting sync.WaitGroup
	errs := make([]error, size)
	for i, m := range c.Members {
		starting.Go(func() { errs[i] = m.start() })
	}
	starting.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return c
}

// free returns addresses with unused ports.
func free(t testing.TB, n int) []string {
	t.Helper()
	var addresses []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		addresses = append(addresses, l.Addr().String())
	}
	return addresses
}

func (m *EtcdMember) start() error {
	name, err := etcdBinary()
	if err != nil {
		return err
	}
	m.process, _, err = startProcess(memberReady, name, m.args...)
	return err
}

// Leader returns the leader. It fails the test if no leader is elected in time.
func (c *EtcdCluster) Leader(t testing.TB) *EtcdMember {
	t.Helper()
	var leader *EtcdMember
	Eventually(t, "etcd has a leader", func() error {
		i := slices.IndexFunc(c.Members, c.leads)
		if i < 0 {
			return errors.New("no member leads")
		}
		leader = c.Members[i]
		return nil
	})
	return leader
}

var leads = regexp.MustCompile(`(?m)^etcd_server_is_leader 1$`)

func (c *EtcdCluster) leads(m *EtcdMember) bool {
	res, err := c.http.Get("https://" + m.Address + "/metrics")
	if err != nil {
		return false
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return err == nil && leads.Match(text)
}

// Kill ends the member with SIGKILL.
func (m *EtcdMember) Kill(t testing.TB) {
	t.Helper()
	p := m.process
	m.process = nil
	if err := p.Kill(); err != nil {
		t.Error(err)
	}
}

// Start restarts a killed member on its data.
func (m *EtcdMember) Start(t testing.TB) {
	t.Helper()
	if err := m.start(); err != nil {
		t.Fatal(err)
	}
}

// Pause makes the member hang: it accepts connections and does not answer until Resume.
func (m *EtcdMember) Pause(t testing.TB) { m.signal(t, syscall.SIGSTOP) }

// Resume lets a paused member continue.
func (m *EtcdMember) Resume(t testing.TB) { m.signal(t, syscall.SIGCONT) }

func (m *EtcdMember) signal(t testing.TB, signal syscall.Signal) {
	t.Helper()
	if err := m.process.cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}

// Link is a proxy in front of an address whose connections can be cut, delayed or made to hang.
type Link struct {
	// Address is HOST:PORT of the proxy.
	Address string

	target string
	mu     struct {
		sync.Mutex
		state linkState
		open  map[net.Conn]bool
		// resumed is closed when the link no longer hangs.
		resumed chan struct{}
	}
}

type linkState int

const (
	linkUp linkState = iota
	linkCut
	linkHangs
	linkShakes
)

// NewLink starts a proxy to an address and stops it at the end of the test.
func NewLink(t testing.TB, target string) *Link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &Link{Address: listener.Addr().String(), target: target}
	l.mu.open, l.mu.resumed = map[net.Conn]bool{}, make(chan struct{})
	t.Cleanup(func() {
		listener.Close()
		l.Cut()
	})
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go l.serve(conn)
		}
	}()
	return l
}

// Cut breaks all connections, and every new one.
func (l *Link) Cut() { l.become(linkCut) }

// Hang keeps all connections open and transfers nothing.
func (l *Link) Hang() { l.become(linkHangs) }

// Shake delays each chunk of data by a different time, so that connections overtake each other, and
// occasionally breaks a connection.
func (l *Link) Shake() { l.become(linkShakes) }

// Restore makes the link work again.
func (l *Link) Restore() { l.become(linkUp) }

func (l *Link) become(state linkState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.mu.state
	l.mu.state = state
	if state == linkCut {
		for conn := range l.mu.open {
			conn.Close()
		}
	}
	if was == linkHangs && state != linkHangs {
		close(l.mu.resumed)
		l.mu.resumed = make(chan struct{})
	}
}

// pass waits while the link hangs, and reports whether the link works.
func (l *Link) pass() bool {
	for {
		l.mu.Lock()
		state, resumed := l.mu.state, l.mu.resumed
		l.mu.Unlock()
		if state == linkShakes {
			time.Sleep(time.Duration(rand.IntN(150)) * time.Millisecond)
			return rand.IntN(50) > 0
		}
		if state != linkHangs {
			return state == linkUp
		}
		<-resumed
	}
}

func (l *Link) keep(conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.state == linkCut {
		return false
	}
	l.mu.open[conn] = true
	return true
}

func (l *Link) forget(conn net.Conn) {
	conn.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.mu.open, conn)
}

func (l *Link) serve(in net.Conn) {
	defer l.forget(in)
	if !l.keep(in) || !l.pass() {
		return
	}
	out, err := net.Dial("tcp", l.target)
	if err != nil {
		return
	}
	defer l.forget(out)
	if !l.keep(out) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { l.copy(out, in) })
	both.Go(func() { l.copy(in, out) })
	both.Wait()
}

func (l *Link) copy(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if !l.pass() {
				return
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
