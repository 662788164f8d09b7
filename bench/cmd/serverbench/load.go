package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
)

// warmup is how long a load runs before it counts.
const warmup = time.Second

// sequence numbers the objects of the whole run.
var sequence atomic.Int64

// load is what one load showed.
type load struct {
	// rate is creates in a second; p99 the 99th percentile of their latency;
	// cpu the CPU time of the server's process for one.
	rate float64
	p99  time.Duration
	cpu  time.Duration
}

// measure creates ConfigMaps from n clients, each with a connection of its own,
// one after the other, for a duration.
func measure(ctx context.Context, s *peer.Server, n int, duration time.Duration) (load, error) {
	if _, err := create(ctx, s, n, warmup); err != nil {
		return load{}, err
	}
	before, err := s.Process.CPU()
	if err != nil {
		return load{}, err
	}
	began := time.Now()
	latencies, err := create(ctx, s, n, duration)
	if err != nil {
		return load{}, err
	}
	elapsed := time.Since(began)
	after, err := s.Process.CPU()
	if err != nil {
		return load{}, err
	}
	slices.Sort(latencies)
	return load{
		rate: float64(len(latencies)) / elapsed.Seconds(),
		p99:  latencies[len(latencies)*99/100],
		cpu:  (after - before) / time.Duration(len(latencies)),
	}, nil
}

func create(ctx context.Context, s *peer.Server, n int, duration time.Duration) ([]time.Duration, error) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.Config.CAData)
	until := time.Now().Add(duration)
	all := make([][]time.Duration, n)
	group, ctx := errgroup.WithContext(ctx)
	for i := range n {
		group.Go(func() error {
			transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
			defer transport.CloseIdleConnections()
			for time.Now().Before(until) {
				began := time.Now()
				if err := createOne(ctx, transport, s.Config.Host); err != nil {
					return err
				}
				all[i] = append(all[i], time.Since(began))
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	latencies := slices.Concat(all...)
	if len(latencies) == 0 {
		return nil, fmt.Errorf("nothing was created within %s", duration)
	}
	return latencies, nil
}

func createOne(ctx context.Context, transport http.RoundTripper, host string) error {
	body := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"bench-%d","labels":{"app":"bench"}},"data":{"key":"value"}}`, sequence.Add(1))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, host+"/api/v1/namespaces/default/configmaps", bytes.NewReader([]byte(body)))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+peer.Token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusCreated {
		return fmt.Errorf("creating a ConfigMap: %s: %s", resp.Status, answer)
	}
	return nil
}
