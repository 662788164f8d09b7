package inflight

import (
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener with as many clients as anybody wants.
type pipes struct{ closed chan struct{} }

func (p pipes) Accept() (net.Conn, error) {
	select {
	case <-p.closed:
		return nil, net.ErrClosed
	default:
	}
	server, client := net.Pipe()
	go func() {
		b := make([]byte, 1)
		for _, err := client.Read(b); err == nil; _, err = client.Read(b) {
		}
	}()
	return server, nil
}

func (p pipes) Close() error   { close(p.closed); return nil }
func (p pipes) Addr() net.Addr { return nil }

// Connections that come all at once are taken when the handshakes of others are
// over, and soon also when these never are.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := pipes{make(chan struct{})}
		l := Pace(inner)
		var taken []net.Conn
		conns := make(chan net.Conn)
		go func() {
			defer close(conns)
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				conns <- conn
			}
		}()
		// check takes what there is, and checks how much that was.
		check := func(when string, want int) {
			t.Helper()
			got := 0
			for {
				synctest.Wait()
				select {
				case conn := <-conns:
					taken = append(taken, conn)
					got++
					continue
				default:
				}
				break
			}
			if got != want {
				t.Errorf("%s: %d more connections, want %d", when, got, want)
			}
		}
		write := func(conn net.Conn) {
			if _, err := conn.Write([]byte{0}); err != nil {
				t.Error(err)
			}
		}
		check("at first", maxYoung)
		write(taken[0])
		check("in the middle of a handshake", 0)
		write(taken[0])
		check("at its end", 1)
		write(taken[0])
		taken[1].Close()
		taken[1].Close()
		check("when one was closed", 1)
		time.Sleep(childhood)
		check("later", maxYoung)
		// Those that are grown up do not count again.
		taken[0].Close()
		write(taken[2])
		write(taken[2])
		check("after the childhood of others", 0)
		inner.Close()
		time.Sleep(childhood)
		for conn := range conns {
			taken = append(taken, conn)
		}
		for _, conn := range taken {
			conn.Close()
		}
	})
}
