// Package load keeps servers busy.
package load

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

// sequence numbers the objects of the whole run.
var sequence atomic.Int64

// Create creates small ConfigMaps from n clients, each with a connection of its own,
// one after the other, until stop is closed. It returns how long each took.
func Create(ctx context.Context, s *peer.Server, n int, stop <-chan struct{}) ([]time.Duration, error) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.Config.CAData)
	all := make([][]time.Duration, n)
	group, ctx := errgroup.WithContext(ctx)
	for i := range n {
		group.Go(func() error {
			transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
			defer transport.CloseIdleConnections()
			for {
				select {
				case <-stop:
					return nil
				default:
				}
				began := time.Now()
				if err := createOne(ctx, transport, s.Config.Host); err != nil {
					return err
				}
				all[i] = append(all[i], time.Since(began))
			}
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return slices.Concat(all...), nil
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
