package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gatehouse-dev/gatehouse/internal/kit/survive"
)

// shutdownTimeout bounds how long connections may delay the end of a server. Requests have a time
// limit of their own; creators that wait for initializers get their response after lastWait.
const shutdownTimeout = 10 * time.Second

// lastWait is how long creators may continue to wait for initializers when the server is to end.
const lastWait = 5 * time.Second

// controllersEnd bounds how long the controllers and informers may take to end before serving ends
// without them.
const controllersEnd = time.Second

// run serves until ctx ends.
func (a *assembly) run(ctx context.Context, ready func(Address)) error {
	group, groupCtx := errgroup.WithContext(ctx)
	if waits := a.stores.initialization; waits != nil {
		defer context.AfterFunc(groupCtx, func() { time.AfterFunc(lastWait, waits.Release) })()
	}
	up, controlled := make(chan struct{}), make(chan struct{})
	group.Go(func() error {
		defer close(controlled)
		select {
		case <-up:
			a.afterStart(groupCtx)
		case <-groupCtx.Done():
		}
		return nil
	})
	// Serving ends when all watches have ended. The watches of the server itself end first.
	serving, endServing := context.WithCancelCause(context.WithoutCancel(ctx))
	defer endServing(nil)
	group.Go(func() error {
		<-groupCtx.Done()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			<-controlled
			a.loopback.informers.Shutdown()
		}()
		select {
		case <-ended:
		case <-time.After(controllersEnd):
		}
		endServing(context.Cause(groupCtx))
		return nil
	})
	// Requests that are being finished pass admission, too: registrations stay fresh, and this server
	// counts among the servers that enforce them, until serving has ended.
	judging, endJudging := context.WithCancel(context.WithoutCancel(ctx))
	group.Go(func() error {
		defer endJudging()
		return a.serve(serving)
	})
	group.Go(func() error {
		if err := a.admitter.run(judging, a.db.client.Client); judging.Err() == nil {
			return err
		}
		return nil
	})
	for _, part := range a.running {
		group.Go(func() error {
			survive.Run(groupCtx, part.name, part.run)
			return nil
		})
	}
	group.Go(func() error { return a.api.custom.Run(groupCtx) })
	group.Go(func() error {
		if err := a.start(groupCtx); err != nil {
			if groupCtx.Err() != nil {
				return nil
			}
			return err
		}
		if err := a.admitter.caches.Await(); err != nil {
			return err
		}
		ready(a.serving.address)
		close(up)
		a.objects.Retry(groupCtx)
		return nil
	})
	err := group.Wait()
	a.loopback.informers.Shutdown()
	if err != nil {
		return err
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// afterStart runs the functions of whenReady, which work through the API, until ctx ends.
func (a *assembly) afterStart(ctx context.Context) {
	var running sync.WaitGroup
	for _, part := range a.whenReady {
		running.Go(func() { survive.Run(ctx, part.name, part.run) })
	}
	running.Wait()
}

// serve handles requests until ctx ends.
func (a *assembly) serve(ctx context.Context) error {
	defer a.serving.inside.Close()
	if clients := a.serving.connections; clients != nil {
		defer context.AfterFunc(ctx, clients.CloseAll)()
	}
	a.generic.ShutdownTimeout = shutdownTimeout
	return a.generic.PrepareRun().RunWithContext(ctx)
}

// start starts the informers and runs the steps of the start, which all work through the server's
// own API.
func (a *assembly) start(ctx context.Context) error {
	a.loopback.informers.Start(ctx.Done())
	if err := a.boot.run(ctx); err != nil {
		return err
	}
	for kind, synced := range a.loopback.informers.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return fmt.Errorf("reading %s: %w", kind, context.Cause(ctx))
		}
	}
	return nil
}

// startError returns the error of Run for an error of the start. It is nil when the server was
// ended during the start, which is not an error.
func startError(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), context.Canceled) {
		return nil
	}
	return err
}
