package chaos

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// silentConnections is how many connections are opened in a flood, of which no client
// says a word.
const silentConnections = 3000

// A new client is served in the middle of a flood of silent connections, which cost
// whoever opens them nothing: no credentials, not even TLS.
func TestNewClientsAreServedInAFloodOfSilentConnections(t *testing.T) {
	// Generous: without a flood it is some milliseconds.
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
		opened := make(chan net.Conn, silentConnections)
		for range 16 {
			flooding.Go(func() {
				for ctx.Err() == nil {
					c, err := net.DialTimeout("tcp", address, harness.Patience)
					if err != nil {
						// As many as this machine lets a process have.
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
			// A transport of its own is a connection of its own.
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
