package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/bench/internal/load"
	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
)

// warmup is the time before a load is measured.
const warmup = time.Second

// result contains the measurements of one load.
type result struct {
	// rate is the number of requests per second; p50, p99 and p999 are percentiles of their latency.
	rate           float64
	p50, p99, p999 time.Duration
	// cpu is the CPU time of the server's process per request; all includes the CPU time of its etcd.
	cpu, all time.Duration
	// allocated is the number of bytes that the server's process allocates per request.
	allocated float64
}

// measure creates objects with n clients for a duration. Each client has its own connection and sends one request at
// a time.
func measure(ctx context.Context, s *peer.Server, of load.Object, n int, duration time.Duration) (result, error) {
	return measureFor(ctx, s, n, duration, of.Create)
}

// measureFor sends requests from n clients for a duration, after a warm-up.
func measureFor(ctx context.Context, s *peer.Server, n int, duration time.Duration, request func() load.Request) (result, error) {
	return measureTurns(ctx, s, n, duration, func(ctx context.Context, c *load.Client, _ int) error {
		return c.Do(ctx, request(), io.Discard)
	})
}

// measureTurns runs turns of n clients for a duration, after a warm-up.
func measureTurns(ctx context.Context, s *peer.Server, n int, duration time.Duration, turn func(context.Context, *load.Client, int) error) (result, error) {
	clients := make([]*load.Client, n)
	for i := range clients {
		clients[i] = load.NewClient(s)
	}
	defer closeAll(clients)
	return measureClients(ctx, s, clients, duration, turn)
}

// measureClients runs turns of the given clients for a duration, after a warm-up.
func measureClients(ctx context.Context, s *peer.Server, clients []*load.Client, duration time.Duration, turn func(context.Context, *load.Client, int) error) (result, error) {
	within := func(duration time.Duration) (result, error) {
		return watched(ctx, s, func() ([]time.Duration, error) {
			deadline := time.Now().Add(duration)
			return load.Turns(ctx, clients, func(ctx context.Context, c *load.Client, i int) (bool, error) {
				if time.Now().After(deadline) {
					return false, nil
				}
				return true, turn(ctx, c, i)
			})
		})
	}
	if _, err := within(warmup); err != nil {
		return result{}, err
	}
	return within(duration)
}

// measureEach sends count requests from n clients.
func measureEach(ctx context.Context, s *peer.Server, n, count int, request func(i int) load.Request) (result, error) {
	return watched(ctx, s, func() ([]time.Duration, error) { return load.Run(ctx, s, n, numbered(count, request)) })
}

// numbered returns a function that returns count requests, one at a time.
func numbered(count int, request func(i int) load.Request) func() (load.Request, bool) {
	var made atomic.Int64
	return func() (load.Request, bool) {
		i := int(made.Add(1)) - 1
		if i >= count {
			return load.Request{}, false
		}
		return request(i), true
	}
}

// watched measures the resources that a server uses during a load.
func watched(ctx context.Context, s *peer.Server, run func() ([]time.Duration, error)) (result, error) {
	allocatedBefore, err := metric(ctx, s, "go_memstats_alloc_bytes_total")
	if err != nil {
		return result{}, err
	}
	before, err := s.Process.CPU()
	if err != nil {
		return result{}, err
	}
	allBefore, err := cpu(s)
	if err != nil {
		return result{}, err
	}
	began := time.Now()
	latencies, err := run()
	if err != nil {
		return result{}, err
	}
	if len(latencies) == 0 {
		return result{}, errors.New("no request was made in the time there was")
	}
	elapsed := time.Since(began)
	after, err := s.Process.CPU()
	if err != nil {
		return result{}, err
	}
	allAfter, err := cpu(s)
	if err != nil {
		return result{}, err
	}
	allocatedAfter, err := metric(ctx, s, "go_memstats_alloc_bytes_total")
	if err != nil {
		return result{}, err
	}
	slices.Sort(latencies)
	count := time.Duration(len(latencies))
	return result{
		rate: float64(len(latencies)) / elapsed.Seconds(),
		p50:  latencies[len(latencies)/2],
		p99:  latencies[len(latencies)*99/100],
		p999: latencies[len(latencies)*999/1000],
		cpu:  (after - before) / count,
		all:  (allAfter - allBefore) / count,

		allocated: (allocatedAfter - allocatedBefore) / float64(count),
	}, nil
}
