package dev

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/kit/subprocess"
)

// errEnded is the error of a program that ended before it listened.
var errEnded = errors.New("the program ended before it listened")

// errInterrupted is the error of a wait that the user interrupted, or of a build that another one replaces.
var errInterrupted = errors.New("interrupted by the user or a change")

// handshakeError is the timeout of a wait for a program that accepts connections, but completes no TLS handshake.
type handshakeError struct{ cause error }

// Error implements error.
func (e *handshakeError) Error() string { return "the TLS handshake: " + e.cause.Error() }

// Unwrap returns context.DeadlineExceeded.
func (e *handshakeError) Unwrap() error { return context.DeadlineExceeded }

const (
	// firstLook is the delay after a refused connection, and lastLook the delay after several failed handshakes:
	// programs log each of them.
	firstLook = 20 * time.Millisecond
	lastLook  = 2 * time.Second
)

// listens waits until the program accepts connections and completes a TLS handshake, or responds without TLS.
// interrupted reports whether the user interrupts the wait.
func listens(ctx context.Context, p *subprocess.Process, address string, interrupted func() bool) error {
	tick := time.NewTicker(firstLook)
	defer tick.Stop()
	pause, next := firstLook, time.Now()
	var refused *handshakeError
	for {
		if !time.Now().Before(next) {
			conn, err := shake(ctx, address, nil)
			if conn != nil {
				conn.Close()
			}
			failed, _ := errors.AsType[*net.OpError](err)
			switch {
			case ctx.Err() != nil:
			case failed == nil:
				return nil
			case failed.Op == "dial":
				refused, pause = nil, firstLook
			default:
				refused, pause = &handshakeError{err}, min(2*pause, lastLook)
			}
			next = time.Now().Add(pause)
		}
		select {
		case <-p.Gone:
			return errEnded
		case <-ctx.Done():
			if cause := context.Cause(ctx); refused == nil || !errors.Is(cause, context.DeadlineExceeded) {
				return cause
			}
			return refused
		case <-tick.C:
			if interrupted() {
				return errInterrupted
			}
		}
	}
}

// shakePatience bounds one connection to a program.
const shakePatience = 2 * time.Second

// shake connects to a program and makes a TLS handshake. A nil config accepts any certificate.
func shake(ctx context.Context, address string, config *tls.Config) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, shakePatience)
	defer cancel()
	if config == nil {
		config = &tls.Config{InsecureSkipVerify: true}
	}
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return conn.(*tls.Conn), nil
}
