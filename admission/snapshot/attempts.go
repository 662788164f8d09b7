package snapshot

import (
	"context"
	"sync"
	"time"
)

const (
	// maxReadTimeout is how long the answer to a read is of use: a store that has much to
	// do answers late, and each attempt that is given up is one more that it has to answer.
	maxReadTimeout = 30 * time.Second
	// maxAttempts bounds the reads that have no answer yet; the oldest one ends when there
	// are more.
	maxAttempts = 16
)

// attempts are the reads that a Refresher began and that have no answer yet. They belong to
// the goroutine of Run.
type attempts struct {
	// answers has room for all of them.
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

// begin begins a read, the answer to which is sent to answers, and returns its number.
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

// over forgets an attempt that has its answer, and ends those before it when it succeeded.
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

// end ends all attempts.
func (a *attempts) end() {
	for _, one := range a.open {
		one.cancel()
	}
	a.running.Wait()
}
