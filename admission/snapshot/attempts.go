package snapshot

import (
	"context"
	"sync"
	"time"
)

const (
	// maxReadTimeout is how long a Refresher accepts the answer to a read. An overloaded store
	// answers late, and to give up an attempt early means one more read that the store has to
	// answer.
	maxReadTimeout = 30 * time.Second
	// maxAttempts bounds the reads that have no answer yet; when there would be more, the
	// oldest one is cancelled.
	maxAttempts = 16
)

// attempts are the reads that a Refresher began and that have no answer yet. Only the goroutine
// of Run uses them.
type attempts struct {
	// answers has room for the answers of all attempts.
	answers chan attempt
	begun   int
	open    []attempt
	running *sync.WaitGroup
}

// attempt is one read, and its answer.
type attempt struct {
	number int
	begin  time.Time
	since  Version
	found  Registrations
	err    error
	cancel context.CancelFunc
}

func newAttempts() attempts {
	return attempts{answers: make(chan attempt, 2*maxAttempts), running: &sync.WaitGroup{}}
}

// begin begins a read and returns its number. The read sends its answer to answers.
func (a *attempts) begin(ctx context.Context, reader Reader, since Version, begin time.Time) int {
	if len(a.open) == maxAttempts {
		a.open[0].cancel()
		a.open = a.open[1:]
	}
	ctx, cancel := context.WithTimeout(ctx, maxReadTimeout)
	a.begun++
	one := attempt{number: a.begun, begin: begin, since: since, cancel: cancel}
	a.open = append(a.open, one)
	a.running.Go(func() {
		one.found, one.err = reader.Read(ctx, since)
		select {
		case a.answers <- one:
		default:
			// Run has not taken the answers of many others, and needs none any more.
		}
	})
	return one.number
}

// over forgets an attempt that has its answer. If the attempt succeeded, over cancels those
// that began earlier.
func (a *attempts) over(answered attempt) {
	answered.cancel()
	var open []attempt
	for _, one := range a.open {
		switch {
		case one.number == answered.number:
		case answered.err == nil && one.number < answered.number:
			one.cancel()
		default:
			open = append(open, one)
		}
	}
	a.open = open
}

// end cancels all attempts.
func (a *attempts) end() {
	for _, one := range a.open {
		one.cancel()
	}
	a.running.Wait()
}
