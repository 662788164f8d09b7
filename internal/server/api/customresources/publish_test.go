package customresources

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
)

// Changes during a report are reported together, and functions that wait for a report are called
// after it, in order.
func TestChangesThatComeTogetherAreReportedOnce(t *testing.T) {
	const changes = 1000
	var reports atomic.Int64
	reporting, release := make(chan struct{}), make(chan struct{})
	p := newPublisher(func() {
		if reports.Add(1) == 1 {
			close(reporting)
			<-release
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); p.run(ctx) }()
	var order []int
	p.changed(func() { order = append(order, 0) })
	<-reporting
	for i := range changes {
		p.changed(func() { order = append(order, i+1) })
	}
	all := make(chan struct{})
	p.reported(func() { close(all) })
	select {
	case <-all:
		t.Fatal("it is called before the report")
	default:
	}
	close(release)
	<-all
	if n := reports.Load(); n != 2 {
		t.Errorf("%d reports", n)
	}
	if len(order) != changes+1 || !slices.IsSorted(order) {
		t.Errorf("%d calls, in order: %t", len(order), slices.IsSorted(order))
	}
	// Without changes to report, a function is called at once.
	called := false
	for !called {
		p.reported(func() { called = true })
	}
	cancel()
	<-ended
	p.finish(p.pending())
}

// A function that is added after a report has begun is called, although nothing else changes.
func TestWhoComesDuringAReportIsCalled(t *testing.T) {
	reporting, release := make(chan struct{}, 10), make(chan struct{}, 10)
	p := newPublisher(func() {
		reporting <- struct{}{}
		<-release
	})
	ended := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { defer close(ended); p.run(ctx) }()
	p.changed(func() {})
	<-reporting
	done := make(chan struct{})
	p.reported(func() { close(done) })
	release <- struct{}{}
	release <- struct{}{}
	<-done
	// Functions whose changes are not reported when run ends are called in any case.
	p.changed(func() {})
	cancel()
	release <- struct{}{}
	<-ended
	if n := p.pending(); n != 0 {
		t.Errorf("%d are not called", n)
	}
}
