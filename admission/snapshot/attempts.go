package snapshot

import (
	"context"
	"sync"
	"time"
)

const (
	// maxReadTimeout is the time after which a Refresher gives up a read. An overloaded store
	// answers late, and abandoning an attempt early adds one more read that the store has to
	// answer.
	maxReadTimeout = 30 * time.Second
	// maxAttempts bounds the unanswered reads; beyond it, the oldest one is cancelled.
	maxAttempts = 16
)

// attempts are the unanswered reads of a Refresher. Only the goroutine of Run uses them.
type attempts struct {
	// answers has capacity for the answers of all attempts.
	answers chan attempt
	begun   int
	open    []attempt
	running *sync.WaitGroup
}

// attempt is one read and its answer.
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
			// Run has stopped taking answers and needs no more.
		}
	})
	return one.number
}

// over removes an answered attempt. If the attempt succeeded, over cancels all earlier attempts.
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
