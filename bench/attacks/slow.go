package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/bench/internal/load"
	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
)

const (
	// slowTime is the maximum time that slow clients hold their connections.
	slowTime = 40 * time.Second
	// slowBodies is the number of clients that send bodies of slowBody bytes, one byte per second.
	slowBodies, slowBody = 400, 100_000
	// unread is the number of clients that do not read a list of listed ConfigMaps with listedSize bytes each. The
	// list is larger than the buffers of a connection.
	unread, listed, listedSize = 450, 300, 32 << 10
)

const configMaps = "/api/v1/namespaces/default/configmaps"

func init() {
	register(attack{
		name:  "slow-bodies",
		about: fmt.Sprintf("%d connections of a user send bodies of %d bytes, one byte in a second; another user creates ConfigMaps", slowBodies, slowBody),
		strike: func(ctx context.Context, t *target) error {
			head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: server\r\nAuthorization: Bearer %s\r\nImpersonate-User: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n",
				configMaps, peer.Token, attacker, slowBody)
			return t.connect(ctx, slowBodies, func(ctx context.Context, conn net.Conn) {
				_, err := io.WriteString(conn, head)
				answered := make(chan struct{})
				go func() {
					defer close(answered)
					t.answeredOn(conn)
				}()
				for err == nil && every(ctx, time.Second) {
					select {
					case <-answered:
						return
					default:
						_, err = conn.Write([]byte{' '})
					}
				}
				conn.Close()
				<-answered
			})
		},
	})
	register(attack{
		name:  "unread-answers",
		about: fmt.Sprintf("%d connections of a user list %d MiB and do not read; another user gets one of the ConfigMaps", unread, listed*listedSize>>20),
		bystander: func() load.Request {
			return load.Request{Path: configMaps + "/listed-0", As: bystander}
		},
		prepare: func(ctx context.Context, t *target) error {
			c := load.NewClient(t.Server)
			defer c.Close()
			for i := range listed {
				if err := c.Do(ctx, load.Request{Method: http.MethodPost, Path: configMaps, Body: fmt.Sprintf(
					`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"listed-%d"},"data":{"key":%q}}`, i, strings.Repeat("x", listedSize))}, io.Discard); err != nil {
					return err
				}
			}
			return nil
		},
		strike: func(ctx context.Context, t *target) error {
			request := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: server\r\nAuthorization: Bearer %s\r\nImpersonate-User: %s\r\n\r\n", configMaps, peer.Token, attacker)
			return t.connect(ctx, unread, func(ctx context.Context, conn net.Conn) {
				if _, err := io.WriteString(conn, request); err == nil {
					t.unread(ctx, conn)
				}
			})
		},
	})
}

// connect makes n clients hold connections until slowTime is over. A client whose connection has ended connects
// again.
func (t *target) connect(ctx context.Context, n int, hold func(context.Context, net.Conn)) error {
	at, err := url.Parse(t.Config.Host)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(t.Config.CAData)
	slow, cancel := context.WithTimeout(ctx, slowTime)
	defer cancel()
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			for slow.Err() == nil {
				conn, err := (&net.Dialer{}).DialContext(slow, "tcp", at.Host)
				if err != nil {
					continue
				}
				// The kernel buffers little of the unread data.
				_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
				secure := tls.Client(conn, &tls.Config{RootCAs: roots, ServerName: at.Hostname()})
				if secure.HandshakeContext(slow) != nil {
					conn.Close()
					continue
				}
				end := context.AfterFunc(slow, func() { secure.Close() })
				hold(slow, secure)
				end()
				secure.Close()
				every(slow, time.Second)
			}
		})
	}
	all.Wait()
	return ctx.Err()
}

// unread waits until the server closes a connection whose answer is not read.
func (t *target) unread(ctx context.Context, conn net.Conn) {
	// The beginning of the answer shows whether the server serves the list at all.
	if code := t.answeredOn(conn); code != "200" {
		every(ctx, time.Second)
		return
	}
	for every(ctx, time.Second) {
		// A write detects the end of the connection, even while there is unread data.
		if _, err := conn.Write([]byte("x")); err != nil {
			return
		}
	}
}

// answeredOn counts the first answer on a connection, and returns its status; "no answer" if there is none.
func (t *target) answeredOn(conn io.Reader) string {
	var line [len("HTTP/1.1 200")]byte
	n, _ := io.ReadFull(conn, line[:])
	_, rest, _ := strings.Cut(string(line[:n]), " ")
	code := cmp.Or(rest, "no answer")
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.answers[code]++
	return code
}
