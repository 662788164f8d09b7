package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
)

const (
	// strangers is the number of connections without credentials. Each sends a byte every strangerPause, for
	// strangerTime.
	strangers     = 1040
	strangerPause = 300 * time.Millisecond
	strangerTime  = 20 * time.Second
	// askTime is the timeout of the API server and of a kubelet for an answer of the agent.
	askTime = 10 * time.Second
)

func init() {
	for _, addresses := range []int{1, 50} {
		s := &stranger{addresses: addresses}
		register(attack{
			name: fmt.Sprintf("agent-connections-%d", addresses),
			about: fmt.Sprintf("%d connections without credentials from %d addresses send one byte every %s to gatehouse agent; the API server sends audit events, and a kubelet probes",
				strangers, addresses, strangerPause),
			only:    []peer.Kind{peer.GatehouseEmbedded},
			prepare: s.prepare, notice: s.notice, strike: s.strike,
		})
	}
}

// stranger attacks an agent from loopback addresses.
type stranger struct {
	addresses      int
	address, token string
	tls            *tls.Config

	mu sync.Mutex
	n  int
}

// prepare starts the agent.
func (s *stranger) prepare(ctx context.Context, t *target) error {
	dir, err := os.MkdirTemp("", "attacks-agent-")
	if err != nil {
		return err
	}
	t.atEnd(func() { os.RemoveAll(dir) })
	kubeconfig, err := t.WriteKubeconfig(dir)
	if err != nil {
		return err
	}
	if t.process, s.address, err = peer.StartAgent(ctx, t.binaries, dir, kubeconfig); err != nil {
		return err
	}
	t.atEnd(func() { _ = t.process.Stop() })
	ca, err := os.ReadFile(filepath.Join(dir, "agent", "ca.crt"))
	if err != nil {
		return err
	}
	token, err := os.ReadFile(filepath.Join(dir, "agent", "audit-token"))
	if err != nil {
		return err
	}
	s.token = strings.TrimSpace(string(token))
	s.tls = &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "localhost"}
	s.tls.RootCAs.AppendCertsFromPEM(ca)
	return nil
}

// notice alternates between sending audit events as the API server and probes as a kubelet.
func (s *stranger) notice(ctx context.Context) error {
	s.mu.Lock()
	s.n++
	probes := s.n%2 == 0
	s.mu.Unlock()
	from, method, path, body := "127.0.0.1", http.MethodPost, "/audit", `{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":[]}`
	if probes {
		from, method, path, body = "127.0.0.2", http.MethodGet, "/livez", ""
	}
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	client := &http.Client{Timeout: askTime, Transport: &http.Transport{DialContext: dialer.DialContext, TLSClientConfig: s.tls, DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(ctx, method, "https://"+s.address+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	if !probes {
		req.Header.Set("Authorization", "Bearer "+s.token)
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s", method, path, resp.Status)
	}
	return nil
}

// strike holds the connections, and reopens the closed ones.
func (s *stranger) strike(ctx context.Context, t *target) error {
	slow, cancel := context.WithTimeout(ctx, strangerTime)
	defer cancel()
	var all sync.WaitGroup
	for i := range strangers {
		dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(fmt.Sprintf("127.0.7.%d", i%s.addresses+1))}}
		all.Go(func() {
			for slow.Err() == nil {
				if conn, err := dialer.DialContext(slow, "tcp", s.address); err == nil {
					s.hold(slow, t, conn)
				}
				every(slow, strangerPause)
			}
		})
	}
	all.Wait()
	return ctx.Err()
}

// hold sends a request byte by byte, until the connection ends.
func (s *stranger) hold(ctx context.Context, t *target, conn net.Conn) {
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	defer conn.Close()
	secure := tls.Client(conn, s.tls)
	_, err := io.WriteString(secure, "POST /audit HTTP/1.1\r\nHost: agent\r\nContent-Length: 100000\r\n\r\n")
	if err != nil {
		return
	}
	go t.answeredOn(secure)
	for err == nil && every(ctx, strangerPause) {
		_, err = secure.Write([]byte{' '})
	}
}
