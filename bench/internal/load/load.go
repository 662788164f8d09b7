// Package load generates load on servers.
package load

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
)

// sequence numbers the objects of the whole run.
var sequence atomic.Int64

// Object is a kind of object that a load creates.
type Object struct{ resource, format string }

var (
	// ConfigMap is small, and few plugins handle it.
	ConfigMap = Object{"configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"bench-%d","labels":{"app":"bench"}},"data":{"key":"value"}}`}
	// Pod has one container. Most plugins handle pods. The namespace default must have its service account.
	Pod = Object{"pods", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"bench-%d","labels":{"app":"bench"}},"spec":{"containers":[{"name":"c","image":"i"}]}}`}
)

// Request is one request of a load.
type Request struct {
	// Method and Path are the method and path; an empty method means GET.
	Method, Path string
	// ContentType is the format of Body, Accept the format of the answer; empty means JSON.
	ContentType, Accept, Body string
	// Compressed requests an answer in gzip.
	Compressed bool
	// As is the user that the administrator impersonates; empty for none.
	As string
}

// Create returns the request that creates the next object.
func (o Object) Create() Request {
	return Request{Method: http.MethodPost, Path: "/api/v1/namespaces/default/" + o.resource, Body: fmt.Sprintf(o.format, sequence.Add(1))}
}

// Create creates objects with n clients until stop is closed. Each client has its own connection and sends one
// request at a time. It returns the durations of the requests.
func Create(ctx context.Context, s *peer.Server, of Object, n int, stop <-chan struct{}) ([]time.Duration, error) {
	return Run(ctx, s, n, func() (Request, bool) {
		select {
		case <-stop:
			return Request{}, false
		default:
			return of.Create(), true
		}
	})
}

// Run sends requests from n clients until next reports that there are no more. Each client has its own connection and
// sends one request at a time. It returns the durations of the requests. The first answer without a 2xx status ends
// it with an error.
func Run(ctx context.Context, s *peer.Server, n int, next func() (Request, bool)) ([]time.Duration, error) {
	return Loop(ctx, s, n, func(ctx context.Context, c *Client, _ int) (bool, error) {
		r, more := next()
		if !more {
			return false, nil
		}
		return true, c.Do(ctx, r, io.Discard)
	})
}

// Loop runs n clients, each with its own connection. A client calls turn with its number until turn returns false.
// Loop returns the durations of all calls except the last one of each client.
func Loop(ctx context.Context, s *peer.Server, n int, turn func(ctx context.Context, c *Client, i int) (bool, error)) ([]time.Duration, error) {
	clients := make([]*Client, n)
	for i := range clients {
		clients[i] = NewClient(s)
		defer clients[i].Close()
	}
	return Turns(ctx, clients, turn)
}

// Turns makes each client call turn with its number until turn returns false. It returns the durations of all calls
// except the last one of each client.
func Turns(ctx context.Context, clients []*Client, turn func(ctx context.Context, c *Client, i int) (bool, error)) ([]time.Duration, error) {
	all := make([][]time.Duration, len(clients))
	group, ctx := errgroup.WithContext(ctx)
	for i, c := range clients {
		group.Go(func() error {
			for {
				began := time.Now()
				if more, err := turn(ctx, c, i); !more || err != nil {
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
	c := NewClient(s)
	defer c.Close()
	return c.Do(ctx, ConfigMap.Create(), io.Discard)
}

// Client sends requests over one connection.
type Client struct {
	// As is the user that the administrator impersonates, unless the request names another.
	As        string
	host      string
	transport *http.Transport
}

// NewClient returns a client of a server. Close it.
func NewClient(s *peer.Server) *Client {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.Config.CAData)
	return &Client{s.As, s.Config.Host, &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true, DisableCompression: true}}
}

// Close closes the connection when no request uses it.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// Refused is the error of an answer without a 2xx status.
type Refused struct {
	// Code is the HTTP status; Reason and Message are from the answer, empty if it has none.
	Code            int
	Reason, Message string

	text string
}

func (r *Refused) Error() string { return r.text }

// Do sends a request, and writes the answer. An answer without a 2xx status is an error.
func (c *Client) Do(ctx context.Context, r Request, answer io.Writer) error {
	req, err := http.NewRequestWithContext(ctx, cmp.Or(r.Method, http.MethodGet), c.host+r.Path, strings.NewReader(r.Body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+peer.Token)
	if r.Body != "" {
		req.Header.Set("Content-Type", cmp.Or(r.ContentType, "application/json"))
	}
	req.Header.Set("Accept", cmp.Or(r.Accept, "application/json"))
	if as := cmp.Or(r.As, c.As); as != "" {
		req.Header.Set("Impersonate-User", as)
	}
	if r.Compressed {
		req.Header.Set("Accept-Encoding", "gzip")
	}
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("%s %s: %w", req.Method, r.Path, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
		var status struct{ Reason, Message string }
		_ = json.Unmarshal(text, &status)
		return &Refused{Code: resp.StatusCode, Reason: status.Reason, Message: status.Message, text: fmt.Sprintf("%s %s: %s: %.4096s", req.Method, r.Path, resp.Status, text)}
	}
	if _, err = io.Copy(answer, resp.Body); err != nil {
		return fmt.Errorf("%s %s: %w", req.Method, r.Path, err)
	}
	return nil
}
