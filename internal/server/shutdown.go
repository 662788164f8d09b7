package server

import (
	"context"
	"errors"
	"time"
)

// shutdownTimeout bounds how long connections may hold up the end of a server. Requests have
// a time of their own; creators that wait for initializers get their answer after lastWait.
const shutdownTimeout = 10 * time.Second

// startError returns what Run says of an error of its start: nothing when the server was
// ended meanwhile, which is not a fault.
func startError(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), context.Canceled) {
		return nil
	}
	return err
}
