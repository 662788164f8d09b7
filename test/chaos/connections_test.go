package chaos

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// A new client is served during a flood of silent connections. The flood costs its client nothing: no
// credentials, not even TLS.
func TestNewClientsAreServedInAFloodOfSilentConnections(t *testing.T) {
	// The number of connections whose clients send nothing.
	silent := speed.Of(500, 3000)
	// Generous: without a flood it takes some milliseconds.
	const most = 3 * time.Second
	s := harness.Start(t)
	address := strings.TrimPrefix(s.URL, "https://")
	rounds(t, 1, func(int) {
		var flood []net.Conn
		defer func() {
			for _, c := range flood {
				c.Close()
			}
		}()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var flooding sync.WaitGroup
		opened := make(chan net.Conn, silent)
		for range 16 {
			flooding.Go(func() {
				for ctx.Err() == nil {
					c, err := net.DialTimeout("tcp", address, harness.Patience)
					if err != nil {
						// The limit of open files on this machine.
						return
					}
					select {
					case opened <- c:
					default:
						c.Close()
						return
					}
				}
			})
		}
		var slowest time.Duration
		for range 20 {
			begun := time.Now()
			fresh := rest.CopyConfig(s.Admin)
			// A separate transport has a separate connection.
			fresh.Dial = (&net.Dialer{}).DialContext
			s.HTTP(t, fresh).Must(http.StatusOK, "GET", configMaps, "")
			slowest = max(slowest, time.Since(begun))
		}
		flooding.Wait()
		close(opened)
		for c := range opened {
			flood = append(flood, c)
		}
		begun := time.Now()
		fresh := rest.CopyConfig(s.Admin)
		fresh.Dial = (&net.Dialer{}).DialContext
		s.HTTP(t, fresh).Must(http.StatusOK, "GET", configMaps, "")
		slowest = max(slowest, time.Since(begun))
		t.Logf("%d silent connections; the slowest new client took %s", len(flood), slowest)
		if slowest > most {
			t.Errorf("a new client waited %s, more than %s", slowest, most)
		}
	})
}

// A connection that was opened before SIGTERM and sends its first request afterwards is not told that the
// server stops, and delays the stop only briefly.
func TestALateConnectionDoesNotHoldUpTheEnd(t *testing.T) {
	t.Parallel()
	const most = 20 * time.Second
	s := harness.Start(t)
	address := strings.TrimPrefix(s.URL, "https://")
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// Connections are accepted in order, so the server has accepted that connection, too.
	s.HTTP(t, nil).Get("/readyz")
	begun := time.Now()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		s.Stop(t)
	}()
	harness.Eventually(t, "the server takes no connections", func() error {
		if again, err := net.Dial("tcp", address); err == nil {
			again.Close()
			return errors.New("it does")
		}
		return nil
	})
	late := tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err := late.Handshake(); err != nil {
		t.Logf("the connection is closed already: %v", err)
	} else if _, err := io.WriteString(late, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"); err != nil {
		t.Logf("the connection is closed already: %v", err)
	}
	<-stopped
	if took := time.Since(begun); took > most {
		t.Errorf("the server took %s to end", took)
	}
}
