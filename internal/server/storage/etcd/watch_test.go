package etcd

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Watches by calls get the same events and errors as watches over a connection.
func TestWatchesByCallsAreThoseOfAConnection(t *testing.T) {
	direct, connected := clients(t)
	for _, name := range []string{"first", "second", "third"} {
		if _, err := direct.Put(t.Context(), "/w/"+name, name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := direct.Delete(t.Context(), "/w/second"); err != nil {
		t.Fatal(err)
	}
	short, err := direct.Grant(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := direct.Put(t.Context(), "/w/expires", "", clientv3.WithLease(short.ID)); err != nil {
		t.Fatal(err)
	}
	last, err := direct.Put(t.Context(), "/w/first", "changed")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := direct.Compact(t.Context(), 3, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	all := []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithRev(4)}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tc := range []struct {
		name    string
		ctx     context.Context
		options []clientv3.OpOption
		// events is the minimum number of events; after that the watch is not read any more.
		events int
	}{
		{"all", t.Context(), all, 5},
		{"with what was before", t.Context(), append(slices.Clone(all), clientv3.WithPrevKV()), 5},
		{"in fragments", t.Context(), append(slices.Clone(all), clientv3.WithFragment(), clientv3.WithPrevKV()), 5},
		{"without deletions", t.Context(), append(slices.Clone(all), clientv3.WithFilterDelete()), 3},
		{"for a server with a leader", clientv3.WithRequireLeader(t.Context()), all, 5},
		{"from a compacted revision", t.Context(), []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithRev(1)}, 1},
		{"canceled", ended, all, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			say := func(c *clientv3.Client) (said []string) {
				ctx, cancel := context.WithTimeout(tc.ctx, time.Minute)
				defer cancel()
				for r := range c.Watch(ctx, "/w/", tc.options...) {
					for _, e := range r.Events {
						said = append(said, fmt.Sprintf("%s %s", e, e.PrevKv))
					}
					if r.Err() != nil {
						said = append(said, fmt.Sprintf("%v, compacted %d, canceled %t", r.Err(), r.CompactRevision, r.Canceled))
					}
					if len(said) >= tc.events {
						return said
					}
				}
				return append(said, "closed")
			}
			got, want := say(direct), say(connected)
			if !slices.Equal(got, want) {
				t.Errorf("got\n%v\nwant\n%v", got, want)
			}
		})
	}
	t.Run("progress", func(t *testing.T) {
		for name, c := range map[string]*clientv3.Client{"direct": direct, "connected": connected} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			watch := c.Watch(ctx, "/none", clientv3.WithCreatedNotify())
			<-watch
			if err := c.RequestProgress(ctx); err != nil {
				t.Fatal(err)
			}
			if r := <-watch; !r.IsProgressNotify() || r.Header.Revision < last.Header.Revision {
				t.Errorf("%s: got %+v, want the progress at %d or later", name, r, last.Header.Revision)
			}
		}
	})
}

// Watchers that come and go, and slow watchers, lose no event and do not delay other watchers.
func TestWatchersByCallsComeAndGo(t *testing.T) {
	const writes, each = 200, 8
	direct, _ := clients(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var group sync.WaitGroup
	for i := range each {
		w := NewWatcher(direct)
		defer w.Close()
		stays := w.Watch(ctx, "/k", clientv3.WithRev(1), clientv3.WithPrevKV())
		group.Go(func() {
			seen := 0
			for r := range stays {
				if i%4 == 0 {
					time.Sleep(time.Millisecond)
				}
				for _, e := range r.Events {
					if want := fmt.Sprint(seen); string(e.Kv.Value) != want {
						t.Errorf("watcher %d: got %s, want %s", i, e.Kv.Value, want)
					}
					if seen++; seen == writes {
						return
					}
				}
			}
			t.Errorf("watcher %d: the watch ended after %d events", i, seen)
		})
		group.Go(func() {
			for ctx.Err() == nil {
				ctx, cancel := context.WithCancel(ctx)
				r, open := <-w.Watch(ctx, "/k", clientv3.WithRev(1))
				cancel()
				if !open {
					return
				}
				if n := len(r.Events); n > 0 && string(r.Events[n-1].Kv.Value) == fmt.Sprint(writes-1) {
					return
				}
			}
		})
	}
	for i := range writes {
		if _, err := direct.Put(ctx, "/k", fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	group.Wait()
}

// Watches by calls end with their client, and with the etcd, which does not wait for them.
func TestWatchesByCallsEndWithTheirClientAndTheirEtcd(t *testing.T) {
	for _, name := range []string{"client", "etcd"} {
		t.Run(name, func(t *testing.T) {
			s, err := Start(t.Context(), Options{Dir: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			end := sync.OnceFunc(s.Close)
			defer end()
			c, err := NewClient(t.Context(), ClientOptions{Endpoints: []string{s.Endpoint()}})
			if err != nil {
				t.Fatal(err)
			}
			s.Direct(c.Client)
			own := NewWatcher(c.Client)
			watch := own.Watch(t.Context(), "/k", clientv3.WithCreatedNotify())
			<-watch
			if name == "etcd" {
				closed := make(chan struct{})
				go func() { defer close(closed); end() }()
				select {
				case <-closed:
				case <-time.After(closeTimeout - time.Second):
					t.Error("etcd waits for a watch")
				}
			}
			c.Close()
			select {
			case r, open := <-watch:
				if open && r.Err() == nil {
					t.Errorf("got %+v, want the end of the watch", r)
				}
			case <-time.After(time.Minute):
				t.Error("the watch goes on")
			}
			if err := own.Close(); err != nil {
				t.Log(err)
			}
		})
	}
}
