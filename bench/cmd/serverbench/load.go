package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gatehouse-dev/gatehouse/bench/internal/load"
	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
)

// warmup is how long a load runs before it counts.
const warmup = time.Second

// result is what one load showed.
type result struct {
	// rate is creates in a second; p99 the 99th percentile of their latency;
	// cpu the CPU time of the server's process for one.
	rate float64
	p99  time.Duration
	cpu  time.Duration
}

// measure creates objects from n clients, each with a connection of its own,
// one after the other, for a duration.
func measure(ctx context.Context, s *peer.Server, of load.Object, n int, duration time.Duration) (result, error) {
	if _, err := create(ctx, s, of, n, warmup); err != nil {
		return result{}, err
	}
	before, err := s.Process.CPU()
	if err != nil {
		return result{}, err
	}
	began := time.Now()
	latencies, err := create(ctx, s, of, n, duration)
	if err != nil {
		return result{}, err
	}
	elapsed := time.Since(began)
	after, err := s.Process.CPU()
	if err != nil {
		return result{}, err
	}
	slices.Sort(latencies)
	return result{
		rate: float64(len(latencies)) / elapsed.Seconds(),
		p99:  latencies[len(latencies)*99/100],
		cpu:  (after - before) / time.Duration(len(latencies)),
	}, nil
}

func create(ctx context.Context, s *peer.Server, of load.Object, n int, duration time.Duration) ([]time.Duration, error) {
	stop := make(chan struct{})
	defer time.AfterFunc(duration, func() { close(stop) }).Stop()
	latencies, err := load.Create(ctx, s, of, n, stop)
	if err == nil && len(latencies) == 0 {
		err = fmt.Errorf("nothing was created within %s", duration)
	}
	return latencies, err
}
