package temporary

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
)

const (
	// Term is how long a registration is active without renewal, and renewal the interval of renewals. The server
	// records whole seconds.
	Term    = 8 * time.Second
	renewal = 3 * time.Second
	// earlier is how long before its first renewal a registration already matches requests, to tolerate servers whose
	// clocks are behind.
	earlier = 15 * time.Second
	// writeTimeout bounds a write of a registration.
	writeTimeout = 5 * time.Second
	// Abandoned is the time after its term when a registration of another owner is removed.
	Abandoned = time.Minute
)

// Clock is the clock of a server, read from its responses. The zero value is the clock of this machine.
type Clock struct {
	// ahead is the lead of the server's clock over ours.
	ahead atomic.Int64
}

// Reading returns a client configuration whose responses update the clock, and whose requests have a time limit.
func (c *Clock) Reading(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Timeout = writeTimeout
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return reading{next, c} })
	return config
}

// Now returns the server's time, to about a second.
func (c *Clock) Now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

type reading struct {
	http.RoundTripper
	clock *Clock
}

// RoundTrip implements http.RoundTripper.
func (r reading) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := r.RoundTripper.RoundTrip(req)
	if err == nil {
		if at, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
			r.clock.ahead.Store(int64(time.Until(at)))
		}
	}
	return resp, err
}

// ShowsTime is an expression that matches requests with a timestamp. Expressions have no clock, but the server records
// in metadata.managedFields the time of a change before it calls the webhooks.
const ShowsTime = `object != null && has(object.metadata) && has(object.metadata.managedFields)`

const noted = `object.metadata.managedFields.exists(m, has(m.time) && timestamp(m.time) `

func literal(t time.Time) string { return `timestamp("` + t.UTC().Format(time.RFC3339) + `")` }

// Late returns an expression that matches requests with a timestamp after the term of a renewal.
func Late(renewed time.Time) string { return noted + `> ` + literal(renewed.Add(Term)) + `)` }

// Within returns an expression that matches requests with a timestamp between since and the end of the term of the
// latest renewal. A request that only removes fields, or changes nothing, has the timestamp of an earlier change. For
// requests without a timestamp, the expression is otherwise.
func Within(since, renewed time.Time, otherwise string) string {
	return `(` + ShowsTime + ` ? ` + noted + `>= ` + literal(since.Add(-earlier)) + `) && !` + Late(renewed) + ` : ` + otherwise + `)`
}

// ErrRemoved ends Keep after a user has removed the registration.
var ErrRemoved = errors.New("the registration was removed")

// Keep renews a registration until ctx ends, or until renew returns ErrRemoved. It calls failed with the first error of
// a series, and with nil when renew succeeds again.
func Keep(ctx context.Context, renew func(context.Context) error, failed func(error)) error {
	tick := time.NewTicker(renewal)
	defer tick.Stop()
	for fails := false; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		switch err := renew(ctx); {
		case errors.Is(err, ErrRemoved):
			return err
		case ctx.Err() == nil && fails != (err != nil):
			fails = err != nil
			failed(err)
		}
	}
}

// Remove removes something from a cluster: it calls remove until that has found it, or has found nothing for the time
// settled, because a create may be in flight. It gives up when ctx ends.
func Remove(ctx context.Context, settled time.Duration, remove func(context.Context) (found bool, err error)) error {
	deadline := time.Now().Add(settled)
	wait := 200 * time.Millisecond
	for {
		found, err := remove(ctx)
		if err == nil && (found || !time.Now().Before(deadline)) {
			return nil
		}
		if err != nil {
			wait = min(2*wait, 10*time.Second)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			if err == nil {
				err = context.Cause(ctx)
			}
			return err
		}
	}
}
