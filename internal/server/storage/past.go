package storage

import (
	"context"
	"net/http"
	"sync/atomic"

	"google.golang.org/grpc/metadata"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	apistorage "k8s.io/apiserver/pkg/storage"
)

// maxPast bounds the concurrent watches that begin before their cache. Each of them costs etcd a
// watch, and the server the decoding of all its events.
const maxPast = 100

// past counts the watches that begin at a version that their watch cache does not have: a version
// from before the first use of the resource, which opened the cache. etcd has all versions since it
// was last compacted.
type past struct{ watches atomic.Int64 }

// pastStream keeps these watches on a stream of etcd of their own: on the stream of the cache, they
// would delay the reports of its progress until they have caught up.
var pastStream = metadata.Pairs("gatehouse-watch", "past")

// watch returns w, the result of the cache. If the cache refused the watch because its version is
// too old, watch returns a watch of etcd. Beyond maxPast clients get the result of the cache, and
// list again.
func (p *past) watch(ctx context.Context, raw apistorage.Interface, key string, opts apistorage.ListOptions, w watch.Interface) (watch.Interface, error) {
	answer := refusalOf(w)
	if answer == nil {
		return w, nil
	}
	if status, ok := answer.Object.(*metav1.Status); !ok || status.Code != http.StatusGone {
		return refusedWatch(*answer), nil
	}
	if p.watches.Add(1) > maxPast {
		p.watches.Add(-1)
		return refusedWatch(*answer), nil
	}
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(ctx, func() { p.watches.Add(-1) })
	// The cache would have sent bookmarks.
	opts.ProgressNotify = opts.Predicate.AllowWatchBookmarks
	inner, err := raw.Watch(metadata.NewOutgoingContext(ctx, pastStream), key, opts)
	if err != nil {
		cancel()
		return nil, err
	}
	return &pastWatch{inner, cancel}, nil
}

// pastWatch is a watch of etcd, whose context ends with it.
type pastWatch struct {
	watch.Interface
	cancel context.CancelFunc
}

func (w *pastWatch) Stop() {
	w.Interface.Stop()
	w.cancel()
}

// refusalOf returns the event with which the cache refuses a watch, nil if it does not. The cache
// reports errors in a channel with this one event; the channels of other watches have room for
// more.
func refusalOf(w watch.Interface) *watch.Event {
	if cap(w.ResultChan()) != 1 {
		return nil
	}
	select {
	case event, ok := <-w.ResultChan():
		if ok {
			return &event
		}
	default:
	}
	return nil
}

// refusedWatch is a watch with one event.
func refusedWatch(event watch.Event) watch.Interface {
	events := make(chan watch.Event, 1)
	events <- event
	close(events)
	return watch.NewProxyWatcher(events)
}
