package dev

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/subprocess"
)

// errEnded is why a program does not listen that has ended.
var errEnded = errors.New("the program ended before it listened")

// errInterrupted is why nobody waits for a program any more.
var errInterrupted = errors.New("the user wants something else")

// listens returns when the program accepts connections and speaks: by TLS, or in a way that says
// that it does not. interrupted reports whether the user wants something else.
func listens(ctx context.Context, p *subprocess.Process, address string, interrupted func() bool) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if conn, err := shake(ctx, address, nil); err == nil || !errors.As(err, new(*net.OpError)) {
			if conn != nil {
				conn.Close()
			}
			if ctx.Err() == nil {
				return nil
			}
		}
		select {
		case <-p.Gone:
			return errEnded
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
			if interrupted() {
				return errInterrupted
			}
		}
	}
}

// shakePatience bounds one connection to a program.
const shakePatience = 2 * time.Second

// shake connects to a program and makes a TLS handshake. config may be nil: the certificate is not looked
// at then.
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
