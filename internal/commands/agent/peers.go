package agent

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
	"github.com/gatehouse-dev/gatehouse/internal/kit/selfsigned"
	"github.com/gatehouse-dev/gatehouse/internal/kit/survive"
)

const (
	// peerQuery has the ID of the forwarding agent, and sourceQuery the original source of the events.
	peerQuery, sourceQuery = "peer", "source"
	// maxPeers bounds the agents to which events are forwarded.
	maxPeers = 16
	// lookupEvery is the interval between DNS lookups of the peers.
	lookupEvery = 5 * time.Second
	// sendTimeout bounds one request to a peer. It is tried sendTries times.
	sendTimeout, sendTries = 10 * time.Second, 3
)

// peers forwards the events of an Agent to the other agents of the cluster, so that each has all traces, whichever
// agent receives the events or serves a request. A nil peers has no others.
type peers struct {
	names  []string
	own    string
	token  string
	client *http.Client

	mu sync.Mutex
	// queues have the queued events for each address; the queue of this agent's own address is nil.
	queues map[string]*queue
}

func newPeers(o Options, token string) (*peers, error) {
	for _, name := range o.Peers {
		if host, port, err := net.SplitHostPort(name); err != nil || host == "" || port == "" {
			return nil, fmt.Errorf("--peer %q is not of the form HOST:PORT", name)
		}
	}
	authority, err := files.Read(filepath.Join(o.Credentials, selfsigned.AuthorityFile), files.Configuration)
	if err != nil {
		return nil, fmt.Errorf("--credentials: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("--credentials: %s has no certificate", selfsigned.AuthorityFile)
	}
	return &peers{
		names: o.Peers, own: rand.Text(), token: token, queues: map[string]*queue{},
		client: &http.Client{Timeout: sendTimeout, Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: o.Service.host()}, ForceAttemptHTTP2: true, IdleConnTimeout: time.Minute,
		}},
	}, nil
}

// id identifies this agent to its peers. It is not empty.
func (p *peers) id() string {
	if p == nil {
		return "-"
	}
	return p.own
}

// share queues events for all peers.
func (p *peers) share(b batch) {
	if p == nil || len(b.events) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// Appending to the batch in one queue must not overwrite the memory shared with the others.
	b.events = slices.Clip(b.events)
	for _, q := range p.queues {
		if q != nil {
			unshared.Add(float64(q.add(b)))
		}
	}
}

// run sends queued events until ctx ends.
func (p *peers) run(ctx context.Context) {
	var senders sync.WaitGroup
	defer senders.Wait()
	defer p.client.CloseIdleConnections()
	stops := map[string]context.CancelFunc{}
	tick := time.NewTicker(lookupEvery)
	defer tick.Stop()
	for {
		p.lookup(ctx, func(address string, q *queue) {
			sending, stop := context.WithCancel(ctx)
			stops[address] = stop
			senders.Go(func() {
				survive.Run(sending, "peer "+address, func(ctx context.Context) { p.send(ctx, address, q) })
			})
		}, func(address string) {
			stops[address]()
			delete(stops, address)
		})
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// lookup calls begin for new addresses of the peers, and end for removed ones. While a name does not resolve, its
// addresses stay.
func (p *peers) lookup(ctx context.Context, begin func(string, *queue), end func(string)) {
	ctx, cancel := context.WithTimeout(ctx, lookupEvery)
	defer cancel()
	var found []string
	for _, name := range p.names {
		host, port, _ := net.SplitHostPort(name)
		addresses, err := net.DefaultResolver.LookupHost(ctx, host)
		if err != nil {
			klog.FromContext(ctx).V(2).Info("The addresses of other agents are not known", "peer", name, "err", err)
			return
		}
		for _, address := range addresses {
			found = append(found, net.JoinHostPort(address, port))
		}
	}
	slices.Sort(found)
	found = slices.Compact(found)
	found = found[:min(len(found), maxPeers)]
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, address := range slices.Collect(maps.Keys(p.queues)) {
		if !slices.Contains(found, address) {
			end(address)
			delete(p.queues, address)
		}
	}
	for _, address := range found {
		if _, ok := p.queues[address]; !ok {
			p.queues[address] = newQueue(maxUnsent)
			begin(address, p.queues[address])
		}
	}
}

// send sends the events of a queue to an address until ctx ends, or the address turns out to be this agent's own.
func (p *peers) send(ctx context.Context, address string, q *queue) {
	for {
		b, ok := q.next(ctx)
		if !ok {
			return
		}
		code, err := p.post(ctx, address, b)
		for try := 1; err != nil && try < sendTries; try++ {
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				return
			}
			code, err = p.post(ctx, address, b)
		}
		switch {
		case code == http.StatusMisdirectedRequest:
			p.mu.Lock()
			p.queues[address] = nil
			p.mu.Unlock()
			return
		case err != nil:
			unshared.Add(float64(len(b.events)))
			klog.FromContext(ctx).Error(err, "Another agent does not take audit events", "peer", address, "events", len(b.events))
		}
	}
}

// post sends events to an address. The error is nil if a retry would be useless.
func (p *peers) post(ctx context.Context, address string, b batch) (code int, err error) {
	// Each event is valid JSON, since it was decoded.
	const head = `{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":[`
	body := &bytes.Buffer{}
	body.Grow(len(head) + b.size + len(b.events) + 2)
	body.WriteString(head)
	for i, event := range b.events {
		if i > 0 {
			body.WriteByte(',')
		}
		body.Write(event)
	}
	body.WriteString("]}")
	place := url.URL{Scheme: "https", Host: address, Path: Path, RawQuery: url.Values{peerQuery: {p.own}, sourceQuery: {b.source}}.Encode()}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, place.String(), body)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+p.token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := p.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 300))
	if err == nil && resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusMisdirectedRequest {
		err = fmt.Errorf("the answer is %s: %q", resp.Status, text)
	}
	return resp.StatusCode, err
}
