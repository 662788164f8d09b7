package storage

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/gatehouse-dev/gatehouse/test/etcdtest"
)

// A watch can begin at any version that etcd has, including a version from before this server first
// used the resource and opened its cache. A version that etcd no longer has gives 410.
func TestWatchesFromBeforeTheFirstUse(t *testing.T) {
	client := etcdtest.Start(t)
	theirs := NewFactory(nil, client, nil)
	t.Cleanup(theirs.Close)
	other := open(t, theirs, "things")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	version := func() string {
		v, err := other.GetCurrentResourceVersion(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return strconv.FormatUint(v, 10)
	}
	create(t, other, "things", "one")
	begin := version()
	create(t, other, "things", "two")
	if err := other.Delete(ctx, "/things/one", &corev1.ConfigMap{}, nil, apistorage.ValidateAllObjectFunc, nil, apistorage.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	// start begins a watch through a server that has used the resource before, or has not.
	start := func(t *testing.T, f *Factory, used bool, predicate apistorage.SelectionPredicate) watch.Interface {
		t.Helper()
		mine := open(t, f, "things")
		if used {
			if err := list(ctx, mine); err != nil {
				t.Fatal(err)
			}
		}
		predicate.AllowWatchBookmarks = true
		w, err := mine.Watch(ctx, "/things/", apistorage.ListOptions{Recursive: true, ResourceVersion: begin, Predicate: predicate})
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	next := func(t *testing.T, w watch.Interface) string {
		t.Helper()
		for {
			select {
			case event, ok := <-w.ResultChan():
				if !ok {
					return "the end"
				}
				if event.Type == watch.Bookmark {
					continue
				}
				if status, ok := event.Object.(*metav1.Status); ok {
					return strconv.Itoa(int(status.Code))
				}
				return string(event.Type) + " " + event.Object.(*corev1.ConfigMap).Name
			case <-ctx.Done():
				t.Fatal("no event")
			}
		}
	}
	server := func(t *testing.T) *Factory {
		f := NewFactory(nil, client, nil)
		t.Cleanup(f.Close)
		return f
	}
	one := everything()
	one.Field = fields.OneTermEqualSelector("metadata.name", "one")
	for name, c := range map[string]struct {
		used      bool
		predicate apistorage.SelectionPredicate
		want      []string
	}{
		"never used":           {false, everything(), []string{"ADDED two", "DELETED one", "ADDED later"}},
		"used since":           {true, everything(), []string{"ADDED two", "DELETED one", "ADDED later"}},
		"used since, selected": {true, one, []string{"DELETED one"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := server(t)
			w := start(t, f, c.used, c.predicate)
			var got []string
			for len(got) < len(c.want) {
				if len(got) == 2 {
					create(t, other, "things", "later")
				}
				got = append(got, next(t, w))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			w.Stop()
			if len(c.want) > 2 {
				if err := other.Delete(ctx, "/things/later", &corev1.ConfigMap{}, nil, apistorage.ValidateAllObjectFunc, nil, apistorage.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			for f.past.watches.Load() != 0 {
				if ctx.Err() != nil {
					t.Fatalf("%d watches count after the end", f.past.watches.Load())
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	t.Run("too many", func(t *testing.T) {
		f := server(t)
		f.past.watches.Store(maxPast)
		if got := next(t, start(t, f, true, everything())); got != "410" {
			t.Errorf("got %s, want 410", got)
		}
		if n := f.past.watches.Load(); n != maxPast {
			t.Errorf("%d watches, want %d", n, maxPast)
		}
	})
	t.Run("cut off", func(t *testing.T) {
		v, err := strconv.ParseInt(version(), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Client.Compact(ctx, v); err != nil {
			t.Fatal(err)
		}
		if got := next(t, start(t, server(t), true, everything())); got != "410" {
			t.Errorf("got %s, want 410", got)
		}
	})
}
