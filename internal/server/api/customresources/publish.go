package customresources

import (
	"context"
	"sync"
	"time"
)

// publisher reports changes of the served CRDs. The cost of a report grows with the number of CRDs:
// changes that come close together are reported once, so that a thousand CRDs that are created at
// once cost a few reports. It is safe for concurrent use.
type publisher struct {
	// report is called when something has changed.
	report func()
	// wake has an element when there is something to report.
	wake chan struct{}

	mu sync.Mutex
	// after are the functions to call when all changes before them are reported.
	after []func()
}

const (
	// reportShare bounds the share of time for reports to one part in reportShare.
	reportShare = 10
	// reportPause is how long changes wait for the next report at most.
	reportPause = 100 * time.Millisecond
)

func newPublisher(report func()) *publisher {
	return &publisher{report: report, wake: make(chan struct{}, 1)}
}

// changed makes run report a change, and then call after.
func (p *publisher) changed(after func()) {
	p.mu.Lock()
	p.after = append(p.after, after)
	p.mu.Unlock()
	p.signal()
}

func (p *publisher) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// reported calls after when all changes until now are reported.
func (p *publisher) reported(after func()) {
	p.mu.Lock()
	waiting := len(p.after) > 0
	if waiting {
		p.after = append(p.after, after)
	}
	p.mu.Unlock()
	if !waiting {
		after()
		return
	}
	// The running report may not have all changes.
	p.signal()
}

// run reports changes until ctx ends.
func (p *publisher) run(ctx context.Context) {
	for {
		select {
		case <-p.wake:
		case <-ctx.Done():
			p.finish(p.pending())
			return
		}
		began := time.Now()
		n := p.pending()
		p.report()
		p.finish(n)
		select {
		case <-time.After(min((reportShare-1)*time.Since(began), reportPause)):
		case <-ctx.Done():
		}
	}
}

func (p *publisher) pending() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.after)
}

// finish calls the first n functions. They stay in the list until the report is over, so that a
// function that is added meanwhile waits, too.
func (p *publisher) finish(n int) {
	p.mu.Lock()
	some := p.after[:n:n]
	p.after = p.after[n:]
	if len(p.after) == 0 {
		p.after = nil
	}
	p.mu.Unlock()
	for _, f := range some {
		f()
	}
}
