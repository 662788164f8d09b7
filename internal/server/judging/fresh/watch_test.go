package fresh

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestWatchTellsOfRegistrations proves S11.8 for other servers: the watch reports
// each write of a registration, by any server, and no other write.
func TestWatchTellsOfRegistrations(t *testing.T) {
	s := newStore(t)
	ctx, stop := context.WithCancel(t.Context())
	told := make(chan struct{}, 100)
	var watching sync.WaitGroup
	watching.Go(func() { Watch(ctx, s.client.Client, root, func() { told <- struct{}{} }) })
	defer watching.Wait()
	defer stop()
	await := func(what string) {
		t.Helper()
		select {
		case <-told:
		case <-time.After(time.Minute):
			t.Fatalf("S11.8: nobody was told: %s", what)
		}
	}
	await("the watch begins")
	s.put("configmaps/x", mutating("x"))
	s.put("namespaces/n", namespace("n", "a"))
	s.put("mutatingwebhookconfigurations/a", mutating("a"))
	await("created")
	s.put("mutatingwebhookconfigurations/a", mutating("a"))
	await("updated")
	s.remove("mutatingwebhookconfigurations/a")
	await("deleted")
	// A second report means that the first one was about the ConfigMap or the Namespace.
	select {
	case <-told:
		t.Error("somebody was told of something else")
	default:
	}
}

// watcher is a Watcher whose watches are given.
type watcher struct {
	clientv3.Watcher
	watches chan clientv3.WatchChan
}

func (w watcher) Watch(ctx context.Context, _ string, _ ...clientv3.OpOption) clientv3.WatchChan {
	select {
	case watch := <-w.watches:
		return watch
	case <-ctx.Done():
		ended := make(chan clientv3.WatchResponse)
		close(ended)
		return ended
	}
}

// Another watch replaces a lost watch, and reports the writes between them.
func TestALostWatchIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watcher{watches: make(chan clientv3.WatchChan, 2)}
		lost := make(chan clientv3.WatchResponse, 2)
		lost <- clientv3.WatchResponse{Created: true}
		lost <- clientv3.WatchResponse{Canceled: true, CompactRevision: 7}
		close(lost)
		next := make(chan clientv3.WatchResponse)
		w.watches <- lost
		w.watches <- next
		ctx, stop := context.WithCancel(t.Context())
		told := 0
		var watching sync.WaitGroup
		watching.Go(func() { Watch(ctx, w, root, func() { told++ }) })
		for i, response := range []clientv3.WatchResponse{
			{Created: true},
			{}, // of progress, without a change
			{Events: []*clientv3.Event{{Type: mvccpb.PUT}}},
		} {
			next <- response
			synctest.Wait()
			if want := []int{2, 2, 3}[i]; told != want {
				t.Errorf("response %d: told %d times, want %d", i, told, want)
			}
		}
		stop()
		close(next)
		watching.Wait()
		if !errors.Is(ctx.Err(), context.Canceled) {
			t.Error("it ended before its time")
		}
	})
}
