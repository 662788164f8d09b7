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
	// Term is how long a registration is in force that is not renewed, and renewal how often it is. The
	// server notes whole seconds.
	Term    = 8 * time.Second
	renewal = 3 * time.Second
	// earlier is how long before its renewal a registration takes requests for new, of servers whose
	// clocks are behind.
	earlier = 15 * time.Second
	// writeTimeout is how long a write of a registration may take.
	writeTimeout = 5 * time.Second
	// Abandoned is how long after its term the registration of another owner is removed.
	Abandoned = time.Minute
)

// Clock is the clock of a server, read from its answers. The zero value is that of this machine.
type Clock struct {
	// ahead is by how much the clock of the server is ahead of ours.
	ahead atomic.Int64
}

// Reading returns the configuration of a client whose answers show the clock, and whose requests have a bounded time.
func (c *Clock) Reading(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Timeout = writeTimeout
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return reading{next, c} })
	return config
}

// Now is what the clock shows, to about a second.
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

// ShowsTime is an expression of requests that show when they were made. Expressions have no clock, but these
// requests have one: the server notes in metadata.managedFields when an object is changed, before it asks the webhooks.
const ShowsTime = `object != null && has(object.metadata) && has(object.metadata.managedFields)`

const noted = `object.metadata.managedFields.exists(m, has(m.time) && timestamp(m.time) `

func literal(t time.Time) string { return `timestamp("` + t.UTC().Format(time.RFC3339) + `")` }

// Late is an expression of requests with a time that come after the term of a renewal.
func Late(renewed time.Time) string { return noted + `> ` + literal(renewed.Add(Term)) + `)` }

// Within is an expression of requests that show a time which is not before a renewal and not after the term of the
// latest one. What only takes fields away, or changes nothing, shows the time of a change before. Of requests that
// show no time, otherwise is the expression.
func Within(since, renewed time.Time, otherwise string) string {
	return `(` + ShowsTime + ` ? ` + noted + `>= ` + literal(since.Add(-earlier)) + `) && !` + Late(renewed) + ` : ` + otherwise + `)`
}

// ErrRemoved ends the owner of a registration that somebody has removed.
var ErrRemoved = errors.New("the registration was removed")

// Keep renews a registration until ctx ends, or until renew returns ErrRemoved. It calls failed with the first error
// of several, and with nil when renew works again.
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

// Remove takes something out of a cluster: it calls remove until that has found what there was, or has found
// nothing for some time, as a create may be on its way. It gives up when ctx ends.
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
