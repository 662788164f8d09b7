package storage

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/gatehouse-dev/gatehouse/internal/server/handling/inflight"
	"github.com/gatehouse-dev/gatehouse/test/etcdtest"
)

// unreadable is a codec that fails to decode, as when a conversion webhook does not answer.
type unreadable struct {
	runtime.Codec
	decode func() error
}

func (u unreadable) Decode([]byte, *schema.GroupVersionKind, runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	return nil, nil, u.decode()
}

var errUnreadable = errors.New("nobody converts this")

// stored returns a factory on an etcd in which another server has stored an object.
func stored(t *testing.T) *Factory {
	t.Helper()
	client := etcdtest.Start(t)
	theirs, f := NewFactory(nil, client, nil), NewFactory(nil, client, nil)
	t.Cleanup(theirs.Close)
	t.Cleanup(f.Close)
	awaitProgress(t.Context(), t)
	create(t, open(t, theirs, "things"), "things", "one")
	return f
}

// failing returns a store with one object that cannot be read.
func failing(t *testing.T) apistorage.Interface {
	t.Helper()
	return openWith(t, stored(t), "things", unreadable{configMaps(), func() error { return errUnreadable }})
}

// patience is how long reads wait for a cache that hangs.
const patience = 5 * time.Second

// hanging returns a store with one object. Reading the object ends with the test.
func hanging(t *testing.T) apistorage.Interface {
	t.Helper()
	f := stored(t)
	f.filling = patience
	end := make(chan struct{})
	store := openWith(t, f, "things", unreadable{configMaps(), func() error {
		<-end
		return errUnreadable
	}})
	// The test must close end first when it ends, since the cache waits for it.
	t.Cleanup(func() { close(end) })
	return store
}

func list(ctx context.Context, store apistorage.Interface) error {
	return store.GetList(ctx, "/things/", apistorage.ListOptions{Recursive: true, Predicate: everything()}, &corev1.ConfigMapList{})
}

func watchAll(ctx context.Context, store apistorage.Interface) error {
	w, err := store.Watch(ctx, "/things/", apistorage.ListOptions{Recursive: true, ResourceVersion: "1", Predicate: everything()})
	if err == nil {
		w.Stop()
	}
	return err
}

// A cache that cannot be filled does not block requests: requests that need no cache are served,
// and other requests get kube-apiserver's answer.
func TestACacheThatCannotBeFilledKeepsNobodyWaiting(t *testing.T) {
	for _, c := range []struct {
		name  string
		store func(*testing.T) apistorage.Interface
		// before is a read that may wait for the cache, once.
		before func(context.Context, apistorage.Interface) error
		read   func(context.Context, apistorage.Interface) error
		want   func(error) bool
	}{
		{"a get of an object that is not there", hanging, nil, func(ctx context.Context, s apistorage.Interface) error {
			return s.Get(ctx, "/things/none", apistorage.GetOptions{}, &corev1.ConfigMap{})
		}, apistorage.IsNotFound},
		{"a get at any version of an object that is not there", hanging, nil, func(ctx context.Context, s apistorage.Interface) error {
			return s.Get(ctx, "/things/none", apistorage.GetOptions{ResourceVersion: "0"}, &corev1.ConfigMap{})
		}, apistorage.IsNotFound},
		{"a get of an object", failing, nil, func(ctx context.Context, s apistorage.Interface) error {
			return s.Get(ctx, "/things/one", apistorage.GetOptions{}, &corev1.ConfigMap{})
		}, func(err error) bool { return errors.Is(err, errUnreadable) }},
		{"the version of the store", hanging, nil, func(ctx context.Context, s apistorage.Interface) error {
			_, err := s.GetCurrentResourceVersion(ctx)
			return err
		}, func(err error) bool { return err == nil }},
		{"the first list of what cannot be read", failing, nil, list, apierrors.IsTooManyRequests},
		{"the first watch of what cannot be read", failing, nil, watchAll, apierrors.IsTooManyRequests},
		{"the second list of what nobody reads", hanging, list, list, apierrors.IsTooManyRequests},
		{"a watch of what nobody reads, after a list", hanging, list, watchAll, apierrors.IsTooManyRequests},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			store := c.store(t)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if c.before != nil {
				if err := c.before(ctx, store); !apierrors.IsTooManyRequests(err) {
					t.Fatalf("before: %v", err)
				}
			}
			begin := time.Now()
			if err := c.read(ctx, store); !c.want(err) {
				t.Errorf("got %v", err)
			}
			if took := time.Since(begin); took > patience/2 {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// The first list of a resource waits until the cache is filled, however long that takes on an
// overloaded machine.
func TestTheFirstListWaitsForItsCache(t *testing.T) {
	t.Parallel()
	slow := make(chan struct{})
	store := openWith(t, stored(t), "things", delayed{configMaps(), slow})
	time.AfterFunc(6*time.Second, func() { close(slow) })
	got := &corev1.ConfigMapList{}
	if err := store.GetList(t.Context(), "/things/", apistorage.ListOptions{Recursive: true, Predicate: everything()}, got); err != nil || len(got.Items) != 1 {
		t.Errorf("got %d objects, %v", len(got.Items), err)
	}
}

// delayed is a codec that decodes nothing before the channel is closed.
type delayed struct {
	runtime.Codec
	until chan struct{}
}

func (d delayed) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	<-d.until
	return d.Codec.Decode(data, defaults, into)
}

// A request that waits for a cache holds no place; when too many requests wait, the next one does
// not wait.
func TestWhoWaitsForACacheHoldsNoPlace(t *testing.T) {
	t.Parallel()
	store := hanging(t)
	limiter := inflight.New(inflight.Options{
		Reads: 1, Writes: 1, Yielded: 10, Serializer: scheme.Codecs,
		LongRunning: func(*http.Request, *request.RequestInfo) bool { return false },
	})
	entered := make(chan struct{}, 10)
	h := limiter.Limit(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		entered <- struct{}{}
		if info, _ := request.RequestInfoFrom(req.Context()); info.Verb == "list" {
			if err := list(req.Context(), store); apierrors.IsTooManyRequests(err) {
				// The error comes from the cache, not from the limiter.
				w.WriteHeader(http.StatusTeapot)
			}
		}
	}))
	send := func(verb string) int {
		ctx := request.WithRequestInfo(t.Context(), &request.RequestInfo{Verb: verb, IsResourceRequest: true})
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(request.WithUser(ctx, &user.DefaultInfo{Name: "u"}), "GET", "/", nil))
		return w.Code
	}
	first := make(chan int, 1)
	go func() { first <- send("list") }()
	<-entered
	// until sends requests until the limiter admits one, while the first request waits.
	until := func(verb string, want int) {
		t.Helper()
		for {
			code := send(verb)
			if len(first) > 0 {
				t.Fatalf("%s: nobody got in while the first one waited", verb)
			}
			if code == want {
				return
			}
			if code != http.StatusTooManyRequests {
				t.Fatalf("%s: %d", verb, code)
			}
		}
	}
	until("get", http.StatusOK)
	until("list", http.StatusTeapot)
	if code := <-first; code != http.StatusTeapot {
		t.Errorf("the first list: %d", code)
	}
}
