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

// Object is what a load creates.
type Object struct{ resource, format string }

var (
	// ConfigMap is small, and hardly any plugin is about it.
	ConfigMap = Object{"configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"bench-%d","labels":{"app":"bench"}},"data":{"key":"value"}}`}
	// Pod has one container. Most plugins are about pods. The namespace default must have
	// its service account.
	Pod = Object{"pods", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"bench-%d","labels":{"app":"bench"}},"spec":{"containers":[{"name":"c","image":"i"}]}}`}
)

// Create creates objects from n clients, each with a connection of its own,
// one after the other, until stop is closed. It returns how long each took.
func Create(ctx context.Context, s *peer.Server, of Object, n int, stop <-chan struct{}) ([]time.Duration, error) {
	all := make([][]time.Duration, n)
	group, ctx := errgroup.WithContext(ctx)
	for i := range n {
		group.Go(func() error {
			transport := transportTo(s)
			defer transport.CloseIdleConnections()
			for {
				select {
				case <-stop:
					return nil
				default:
				}
				began := time.Now()
				if err := createOne(ctx, transport, s.Config.Host, of); err != nil {
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

// CreateOne creates one small ConfigMap.
func CreateOne(ctx context.Context, s *peer.Server) error {
	transport := transportTo(s)
	defer transport.CloseIdleConnections()
	return createOne(ctx, transport, s.Config.Host, ConfigMap)
}

func transportTo(s *peer.Server) *http.Transport {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.Config.CAData)
	return &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
}

func createOne(ctx context.Context, transport http.RoundTripper, host string, of Object) error {
	body := fmt.Sprintf(of.format, sequence.Add(1))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, host+"/api/v1/namespaces/default/"+of.resource, bytes.NewReader([]byte(body)))
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
		return fmt.Errorf("creating one of %s: %s: %s", of.resource, resp.Status, answer)
	}
	return nil
}
