package traces

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/gatehouse-dev/gatehouse/internal/kit/survive"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/traces/v1alpha1"
)

// maxBehind is how many events a watcher may be behind. The traces for a watcher that is behind
// stay in memory beyond the bound of the ring, and so there is also a bound in bytes: a part of
// the ring's bound, or minBehind if that is more.
const (
	maxBehind  = 4096
	behindPart = 8
	minBehind  = 64 << 10
)

// watcher sends the traces that are added to a ring. It makes the records in its own goroutine, so
// that requests do not wait for watchers.
type watcher struct {
	ring    *Ring
	convert func(kept) *v1alpha1.AdmissionTrace
	result  chan watch.Event
	wake    chan struct{}
	stop    context.CancelFunc

	// The ring's lock guards the fields that follow.
	behind      []change
	behindBytes int
	lost        bool
}

// change is an event that a watcher has not sent yet.
type change struct {
	event watch.EventType
	kept
	size int
}

// tell queues an event for all watchers, and ends watchers that are too far behind. The lock is
// held.
func (r *Ring) tell(event watch.EventType, e *entry) {
	for w := range r.mu.watchers {
		if len(w.behind) >= maxBehind || w.behindBytes+e.size > max(r.bound/behindPart, minBehind) {
			w.lost, w.behind, w.behindBytes = true, nil, 0
			delete(r.mu.watchers, w)
		} else {
			w.behind = append(w.behind, change{event, kept{e.trace, e.version}, e.size})
			w.behindBytes += e.size
		}
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// watch sends the traces in the ring after a version, and then new traces. convert returns nil for
// traces that the watcher does not want. With bookmark set, a bookmark follows after the first
// traces.
func (r *Ring) watch(ctx context.Context, after int64, bookmark bool, convert func(kept) *v1alpha1.AdmissionTrace) *watcher {
	ctx, stop := context.WithCancel(ctx)
	w := &watcher{ring: r, convert: convert, result: make(chan watch.Event), wake: make(chan struct{}, 1), stop: stop}
	r.mu.Lock()
	initial, version := r.since(after), r.mu.version
	r.mu.watchers[w] = struct{}{}
	r.mu.Unlock()
	go survive.Run(ctx, "watch of traces", func(ctx context.Context) { w.run(ctx, initial, bookmark, version) })
	return w
}

// Stop implements watch.Interface.
func (w *watcher) Stop() { w.stop() }

// ResultChan implements watch.Interface.
func (w *watcher) ResultChan() <-chan watch.Event { return w.result }

// run sends events until ctx ends.
func (w *watcher) run(ctx context.Context, initial []kept, bookmark bool, version int64) {
	defer close(w.result)
	defer func() {
		w.ring.mu.Lock()
		defer w.ring.mu.Unlock()
		delete(w.ring.mu.watchers, w)
		w.behind = nil
	}()
	for _, k := range initial {
		if !w.pass(ctx, watch.Added, k) {
			return
		}
	}
	if bookmark {
		mark := &v1alpha1.AdmissionTrace{}
		mark.ResourceVersion = versionText(version)
		mark.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		if !w.send(ctx, watch.Event{Type: watch.Bookmark, Object: mark}) {
			return
		}
	}
	for {
		select {
		case <-w.wake:
		case <-ctx.Done():
			return
		}
		w.ring.mu.Lock()
		changes, lost := w.behind, w.lost
		w.behind, w.behindBytes = nil, 0
		w.ring.mu.Unlock()
		for _, c := range changes {
			if !w.pass(ctx, c.event, c.kept) {
				return
			}
		}
		if lost {
			w.send(ctx, watch.Event{Type: watch.Error, Object: &metav1.Status{
				Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired,
				Message: "the watch is too far behind the new traces: list again, then watch",
			}})
			return
		}
	}
}

// pass sends an event about a trace that the watcher wants, and reports whether to continue.
func (w *watcher) pass(ctx context.Context, event watch.EventType, k kept) bool {
	t := w.convert(k)
	return t == nil || w.send(ctx, watch.Event{Type: event, Object: t})
}

func (w *watcher) send(ctx context.Context, e watch.Event) bool {
	select {
	case w.result <- e:
		return true
	case <-ctx.Done():
		return false
	}
}

func versionText(version int64) string { return strconv.FormatInt(version, 10) }

func parseVersion(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	version, err := strconv.ParseInt(text, 10, 64)
	if err != nil || version < 0 {
		return 0, fmt.Errorf("resourceVersion %q does not come from this server", text)
	}
	return version, nil
}
