package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Path is the path to which the API server sends its audit events.
const Path = "/audit"

// Bounds of the audit events from the API server.
const (
	// maxBody bounds a request body, in bytes. By default, the backend sends at most 400 events.
	maxBody = 32 << 20
	// maxEvents bounds the events of a request.
	maxEvents = 10_000
	// maxReading bounds the bodies that are read concurrently; the backend retries the others.
	maxReading = 4
	// readTimeout bounds the read of a body.
	readTimeout = 30 * time.Second
	// maxQueued bounds the queue of events to convert, and maxUnsent the queue for each peer, in bytes.
	maxQueued, maxUnsent = 16 << 20, 4 << 20
)

// intake handles the audit events of the API server, and passes other requests to next.
func (a *Agent) intake(next http.Handler) http.Handler {
	reading := make(chan struct{}, maxReading)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != Path {
			next.ServeHTTP(w, r)
			return
		}
		if !a.authenticated(r) {
			// Events of other clients could be forged.
			http.Error(w, "only the API server sends audit events here, with the token of its kubeconfig", http.StatusUnauthorized)
			return
		}
		if a.listener != nil {
			a.listener.Authenticated(r.RemoteAddr)
		}
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "audit events are sent by POST", http.StatusMethodNotAllowed)
			return
		}
		query := r.URL.Query()
		from, source := query.Get(peerQuery), query.Get(sourceQuery)
		if from == a.peers.id() {
			http.Error(w, "this is the agent that sent it", http.StatusMisdirectedRequest)
			return
		}
		if from == "" {
			source = "audit webhook of " + hostOf(r)
		}
		select {
		case reading <- struct{}{}:
			defer func() { <-reading }()
		default:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "too many requests with audit events at the same time", http.StatusTooManyRequests)
			return
		}
		list, size, err := readEvents(r.Body)
		if err != nil {
			events.WithLabelValues("refused").Inc()
			code := http.StatusBadRequest
			var large *http.MaxBytesError
			if errors.As(err, &large) || errors.Is(err, errTooMany) {
				code = http.StatusRequestEntityTooLarge
			}
			http.Error(w, err.Error(), code)
			return
		}
		dropped.Add(float64(a.queue.add(batch{list, source, from != "", size})))
		w.WriteHeader(http.StatusOK)
	})
}

// errTooMany is the error for a list of more than maxEvents.
var errTooMany = fmt.Errorf("more than %d audit events in one request", maxEvents)

// readEvents reads an EventList of audit.k8s.io/v1, event by event.
func readEvents(r io.Reader) (list []jsontext.Value, size int, err error) {
	in := jsontext.NewDecoder(r, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if t, err := in.ReadToken(); err != nil || t.Kind() != '{' {
		return nil, 0, errors.Join(errors.New("the body is not an EventList of audit.k8s.io/v1 in JSON"), err)
	}
	var kind, version string
	for in.PeekKind() == '"' {
		key, err := in.ReadToken()
		if err != nil {
			return nil, 0, err
		}
		switch key.String() {
		case "kind":
			err = json.UnmarshalDecode(in, &kind)
		case "apiVersion":
			err = json.UnmarshalDecode(in, &version)
		case "items":
			list, size, err = readItems(in)
		default:
			err = in.SkipValue()
		}
		if err != nil {
			return nil, 0, err
		}
	}
	if _, err := in.ReadToken(); err != nil {
		return nil, 0, err
	}
	if kind != "EventList" || version != "audit.k8s.io/v1" {
		return nil, 0, fmt.Errorf("the body is %.80q of %.80q, and not an EventList of audit.k8s.io/v1", kind, version)
	}
	return list, size, nil
}

func readItems(in *jsontext.Decoder) (list []jsontext.Value, size int, err error) {
	t, err := in.ReadToken()
	if err != nil || t.Kind() == 'n' {
		return nil, 0, err
	}
	if t.Kind() != '[' {
		return nil, 0, errors.New("items is not a list")
	}
	for in.PeekKind() != ']' {
		event, err := in.ReadValue()
		if err != nil {
			return nil, 0, err
		}
		// The decoder reuses its buffer for the next event.
		if list, size = append(list, bytes.Clone(event)), size+len(event); len(list) > maxEvents {
			return nil, 0, errTooMany
		}
	}
	_, err = in.ReadToken()
	return list, size, err
}

// batch is a group of events, such as the events of one request. size is their total, in bytes.
type batch struct {
	events   []jsontext.Value
	source   string
	fromPeer bool
	size     int
}

// joins reports whether an event can be added to this batch.
func (b batch) joins(other batch) bool {
	return len(other.events) == 1 && len(b.events) < 400 && b.size < 1<<20 && b.source == other.source && b.fromPeer == other.fromPeer
}

// queue holds events in order, up to a number of bytes.
type queue struct {
	limit   int
	mu      sync.Mutex
	batches []batch
	size    int
	wake    chan struct{}
}

func newQueue(limit int) *queue { return &queue{limit: limit, wake: make(chan struct{}, 1)} }

// add adds events. It returns the number of old events that were dropped to make room.
func (q *queue) add(b batch) (dropped int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.size += b.size
	if last := len(q.batches) - 1; last >= 0 && q.batches[last].joins(b) {
		q.batches[last].events = append(q.batches[last].events, b.events...)
		q.batches[last].size += b.size
	} else {
		q.batches = append(q.batches, b)
	}
	for q.size > q.limit && len(q.batches) > 1 {
		dropped += len(q.batches[0].events)
		q.size -= q.batches[0].size
		q.batches[0] = batch{}
		q.batches = q.batches[1:]
	}
	select {
	case q.wake <- struct{}{}:
	default:
	}
	return dropped
}

// next removes and returns the oldest events. It waits for events until ctx ends.
func (q *queue) next(ctx context.Context) (batch, bool) {
	for {
		q.mu.Lock()
		if len(q.batches) > 0 {
			b := q.batches[0]
			q.batches[0] = batch{}
			q.batches, q.size = q.batches[1:], q.size-b.size
			q.mu.Unlock()
			return b, ctx.Err() == nil
		}
		q.mu.Unlock()
		select {
		case <-q.wake:
		case <-ctx.Done():
			return batch{}, false
		}
	}
}
