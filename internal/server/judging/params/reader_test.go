package params_test

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/gatehouse-dev/gatehouse/internal/server/api/resources"
	"github.com/gatehouse-dev/gatehouse/internal/server/judging/params"
)

var configMaps = corev1.SchemeGroupVersion.WithKind("ConfigMap")

// store is a storage of ConfigMaps whose reads take a second.
type store struct {
	rest.Storage
	rest.Lister
	rest.Watcher
	reads atomic.Int32
	err   error
	// takes is how long a read takes; zero means a second.
	takes time.Duration
}

func (s *store) read(ctx context.Context) error {
	s.reads.Add(1)
	select {
	case <-time.After(cmp.Or(s.takes, time.Second)):
		return s.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *store) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	if err := s.read(ctx); err != nil {
		return nil, err
	}
	namespace, _ := request.NamespaceFrom(ctx)
	return configMap(namespace, name), nil
}

func (s *store) List(ctx context.Context, _ *metainternalversion.ListOptions) (runtime.Object, error) {
	if err := s.read(ctx); err != nil {
		return nil, err
	}
	return &corev1.ConfigMapList{Items: []corev1.ConfigMap{*configMap("b", "a"), *configMap("a", "z"), *configMap("a", "c")}}, nil
}

func configMap(namespace, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// reader returns a Reader of a store.
func reader(o params.Options, s rest.Storage) *params.Reader { return readerOf(o, configMaps, s) }

// readerOf is reader for a store of another kind.
func readerOf(o params.Options, kind schema.GroupVersionKind, s rest.Storage) *params.Reader {
	scheme := runtime.NewScheme()
	_ = corev1.AddToScheme(scheme)
	r := params.New(o)
	r.Serve(resources.Static{kind.GroupVersion().WithResource("configmaps"): {"": &resources.Endpoint{
		Kind: kind, Storage: s, Scope: &handlers.RequestScope{Convertor: scheme}, Discovery: metav1.APIResource{Name: "configmaps", Namespaced: true},
	}}}, nil, nil, func(resource schema.GroupResource) string { return "/" + resource.Resource })
	return r
}

// Requests that need the same object share a read: in bounded mode for half a second, in strict
// mode if they came before the read began. S20.8.
func TestRequestsShareAReadAsLongAsTheModeLets(t *testing.T) {
	for _, c := range []struct {
		name   string
		strict bool
		// at are the times at which requests come.
		at    []time.Duration
		reads int32
	}{
		{"bounded, at once", false, []time.Duration{0, 0, 0}, 1},
		{"bounded, within half a second", false, []time.Duration{0, 400 * time.Millisecond}, 1},
		{"bounded, later", false, []time.Duration{0, 600 * time.Millisecond}, 2},
		{"strict, at once", true, []time.Duration{0, 0, 0}, 1},
		{"strict, a moment later", true, []time.Duration{0, time.Millisecond, time.Millisecond}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &store{}
				r := reader(params.Options{Strict: c.strict}, s)
				for _, at := range c.at {
					go func() {
						time.Sleep(at)
						ctx := request.WithReceivedTimestamp(t.Context(), time.Now())
						got, err := r.Get(ctx, configMaps, "shop", "limits")
						if err != nil {
							t.Error(err)
						} else if u := got.(*unstructured.Unstructured); u.GetName() != "limits" || u.GetNamespace() != "shop" || u.GroupVersionKind() != configMaps {
							t.Errorf("got %v", u)
						}
					}()
				}
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if n := s.reads.Load(); n != c.reads {
					t.Errorf("%d reads, want %d", n, c.reads)
				}
			})
		})
	}
}

// A request that came before a read began is served by it in strict mode, although it asks
// later. S20.8.
func TestAStrictRequestIsServedByAReadThatBeganAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{}
		r := reader(params.Options{Strict: true}, s)
		early := request.WithReceivedTimestamp(t.Context(), time.Now())
		time.Sleep(time.Millisecond)
		for _, ctx := range []context.Context{request.WithReceivedTimestamp(t.Context(), time.Now()), early} {
			if _, err := r.Get(ctx, configMaps, "shop", "limits"); err != nil {
				t.Fatal(err)
			}
		}
		if n := s.reads.Load(); n != 1 {
			t.Errorf("%d reads, want 1", n)
		}
	})
}

// A request waits for a read until its own time is over. The end of a request does not end the
// read, since other requests wait for it. S15.9, S15.10.
func TestACancelledRequestDoesNotEndTheReadOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{}
		r := reader(params.Options{}, s)
		first, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("the client went away")
		ended := make(chan error, 1)
		go func() {
			_, err := r.Get(first, configMaps, "shop", "limits")
			ended <- err
		}()
		synctest.Wait()
		other := make(chan error, 1)
		go func() {
			_, err := r.Get(t.Context(), configMaps, "shop", "limits")
			other <- err
		}()
		synctest.Wait()
		cancel(gone)
		if err := <-ended; !errors.Is(err, gone) {
			t.Errorf("the error is %v, want %v", err, gone)
		}
		if err := <-other; err != nil {
			t.Errorf("the other request: %v", err)
		}
		if n := s.reads.Load(); n != 1 {
			t.Errorf("%d reads, want 1", n)
		}
	})
}

// A read that fails serves all requests that wait for it, and the next request reads again; absent
// objects are cached like others.
func TestAFailedReadIsNotRemembered(t *testing.T) {
	for _, c := range []struct {
		name  string
		err   error
		reads int32
	}{
		{"an error", errors.New("etcd is away"), 2},
		{"not found", apierrors.NewNotFound(corev1.Resource("configmaps"), "limits"), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &store{err: c.err}
				r := reader(params.WithMaxAge(params.Options{}, time.Minute), s)
				for range 2 {
					if _, err := r.Get(t.Context(), configMaps, "shop", "limits"); !errors.Is(err, c.err) {
						t.Errorf("the error is %v, want %v", err, c.err)
					}
				}
				if n := s.reads.Load(); n != c.reads {
					t.Errorf("%d reads, want %d", n, c.reads)
				}
			})
		})
	}
}

// A read ends when its time is over, also when a request waits for the read.
func TestAReadHasATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := reader(params.Options{Timeout: time.Millisecond}, &store{})
		if _, err := r.Get(t.Context(), configMaps, "shop", "limits"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the error is %v, want %v", err, context.DeadlineExceeded)
		}
	})
}

// Params of a selector are read like a param of a name (S15.9), and are sorted by namespace and
// name. S15.12.
func TestListsAreInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got, err := reader(params.Options{}, &store{}).List(t.Context(), configMaps, "", labels.Everything())
		if err != nil {
			t.Fatal(err)
		}
		names := ""
		for _, o := range got {
			u := o.(*unstructured.Unstructured)
			names += u.GetNamespace() + "/" + u.GetName() + " "
		}
		if want := "a/c a/z b/a "; names != want {
			t.Errorf("got %s, want %s", names, want)
		}
	})
}

// A kind that is not served, or no longer served, has no objects: S15.8. Only Scope reports
// that the kind is not served.
func TestAKindThatVanishedHasNoObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := reader(params.Options{}, &store{})
		gadgets := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Gadget"}
		if _, served, err := r.Scope(t.Context(), gadgets); served || err != nil {
			t.Errorf("served %t, error %v", served, err)
		}
		if namespaced, served, err := r.Scope(t.Context(), configMaps); !namespaced || !served || err != nil {
			t.Errorf("ConfigMaps: namespaced %t, served %t, error %v", namespaced, served, err)
		}
		if _, err := r.Get(t.Context(), gadgets, "shop", "limits"); !apierrors.IsNotFound(err) {
			t.Errorf("the error is %v, want NotFound", err)
		}
		if got, err := r.List(t.Context(), gadgets, "shop", labels.Everything()); err != nil || len(got) > 0 {
			t.Errorf("the list has %v, error %v", got, err)
		}
	})
}

// After the response to a write of an object, a read of that object serves no new request, also if
// the read is in progress then. Reads of other objects continue to serve. S20.8.
func TestAWriteEndsTheReadsOfWhatItWrote(t *testing.T) {
	type ask struct {
		// namespace is the namespace of the param; a list has no name.
		namespace, name string
	}
	limits, all, shop := ask{"shop", "limits"}, ask{"", ""}, ask{"shop", ""}
	for _, c := range []struct {
		name   string
		place  string
		key    string
		asks   ask
		strict bool
		// at is when the write is answered; a read takes a second and begins at 0.
		at    time.Duration
		reads int32
	}{
		{"the param", "/configmaps", "/configmaps/shop/limits", limits, false, 1500 * time.Millisecond, 2},
		{"the param, while it is read", "/configmaps", "/configmaps/shop/limits", limits, false, 500 * time.Millisecond, 2},
		{"another name", "/configmaps", "/configmaps/shop/others", limits, false, 1500 * time.Millisecond, 1},
		{"a name that begins like it", "/configmaps", "/configmaps/shop/limits-2", limits, false, 1500 * time.Millisecond, 1},
		{"another namespace", "/configmaps", "/configmaps/bank/limits", limits, false, 1500 * time.Millisecond, 1},
		{"another kind", "/secrets", "/secrets/shop/limits", limits, false, 1500 * time.Millisecond, 1},
		{"one of a list of all", "/configmaps", "/configmaps/shop/limits", all, false, 1500 * time.Millisecond, 2},
		{"one of a list of a namespace", "/configmaps", "/configmaps/shop/limits", shop, false, 1500 * time.Millisecond, 2},
		{"one of a list of another namespace", "/configmaps", "/configmaps/shopping/limits", shop, false, 1500 * time.Millisecond, 1},
		{"strict mode needs no such help", "/configmaps", "/configmaps/shop/limits", limits, true, 1500 * time.Millisecond, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &store{}
				r := reader(params.WithMaxAge(params.Options{Strict: c.strict}, time.Hour), s)
				ask := func() {
					ctx := request.WithReceivedTimestamp(t.Context(), time.Now())
					var err error
					if c.asks.name != "" {
						_, err = r.Get(ctx, configMaps, c.asks.namespace, c.asks.name)
					} else {
						_, err = r.List(ctx, configMaps, c.asks.namespace, labels.Everything())
					}
					if err != nil {
						t.Error(err)
					}
				}
				go ask()
				time.Sleep(c.at)
				r.Written(c.place, c.key)
				ask()
				if n := s.reads.Load(); n != c.reads {
					t.Errorf("%d reads, want %d", n, c.reads)
				}
			})
		})
	}
}

// The reader follows the writes of other servers to the places of params, as long as requests
// need these params.
func TestWritesOfOtherServersAreFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{}
		tell := make(chan func(string), 10)
		ended := make(chan string, 10)
		r := reader(params.WithMaxAge(params.Options{Follow: func(ctx context.Context, prefix string, changed func(string)) {
			tell <- changed
			<-ctx.Done()
			ended <- prefix
		}}, time.Hour), s)
		ctx, cancel := context.WithCancel(t.Context())
		running := make(chan struct{})
		go func() {
			defer close(running)
			r.Run(ctx)
		}()
		get := func(want int32) {
			t.Helper()
			if _, err := r.Get(t.Context(), configMaps, "shop", "limits"); err != nil {
				t.Fatal(err)
			}
			if n := s.reads.Load(); n != want {
				t.Errorf("%d reads, want %d", n, want)
			}
		}
		get(1)
		changed := <-tell
		get(1)
		changed("/configmaps/shop/limits")
		get(2)
		// A watch that begins again may have missed writes.
		changed("/configmaps/")
		get(3)
		time.Sleep(3 * time.Minute)
		select {
		case prefix := <-ended:
			if prefix != "/configmaps/" {
				t.Errorf("%s was followed", prefix)
			}
		default:
			t.Error("it is followed although nobody asks any more")
		}
		r.Written("/configmaps", "/configmaps/shop/limits")
		get(4)
		<-tell
		cancel()
		<-running
	})
}

// unlisted is a storage of objects that can be created but not read.
type unlisted struct{ rest.Storage }

// A kind that cannot be read has no params. Neither has a kind of the server's own that cannot
// be watched. The reader then reads nothing, and no request waits. S15.14.
func TestAKindThatCannotBeReadHasNoParams(t *testing.T) {
	own := schema.GroupVersionKind{Group: "gatehouse.dev", Version: "v1alpha1", Kind: "RegistrationState"}
	for _, c := range []struct {
		name    string
		kind    schema.GroupVersionKind
		storage rest.Storage
		want    string
	}{
		{"cannot be read", configMaps, unlisted{}, "paramKind kind `&ParamKind{APIVersion:v1,Kind:ConfigMap,}` not yet synced to use for admission"},
		{"the server's own", own, unwatched{Getter: &store{}, Lister: &store{}}, "paramKind kind `&ParamKind{APIVersion:gatehouse.dev/v1alpha1,Kind:RegistrationState,}` not yet synced to use for admission"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := readerOf(params.Options{}, c.kind, c.storage)
				began := time.Now()
				if _, err := r.Get(t.Context(), c.kind, "shop", "limits"); err == nil || err.Error() != c.want {
					t.Errorf("a param of a name: %v", err)
				}
				if _, err := r.List(t.Context(), c.kind, "shop", labels.Everything()); err == nil || err.Error() != c.want {
					t.Errorf("params of a selector: %v", err)
				}
				if took := time.Since(began); took > 0 {
					t.Errorf("it took %s", took)
				}
				if namespaced, served, err := r.Scope(t.Context(), c.kind); !namespaced || !served || err != nil || r.HasParams(c.kind) {
					t.Errorf("namespaced %t, served %t, params %t, error %v", namespaced, served, r.HasParams(c.kind), err)
				}
			})
		})
	}
}

// unwatched is a storage of objects that can be read but not watched.
type unwatched struct {
	rest.Storage
	rest.Lister
	rest.Getter
}

// A kind that can be listed and not watched has params, which are as new as in bounded mode.
// kube-apiserver has such params, too: it lists such a kind periodically. S15.14.
func TestAKindThatCannotBeWatchedHasParams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{takes: time.Millisecond}
		r := reader(params.Options{}, unwatched{Getter: s, Lister: s})
		if !r.HasParams(configMaps) {
			t.Error("a problem is reported")
		}
		if got, err := r.Get(t.Context(), configMaps, "shop", "limits"); err != nil || got.(*unstructured.Unstructured).GetName() != "limits" {
			t.Errorf("a param of a name: %v, %v", got, err)
		}
		for _, wait := range []time.Duration{0, 0, time.Second} {
			time.Sleep(wait)
			if got, err := r.List(t.Context(), configMaps, "shop", labels.Everything()); err != nil || len(got) != 3 {
				t.Errorf("params of a selector: %v, %v", got, err)
			}
		}
		if reads := s.reads.Load(); reads != 3 {
			t.Errorf("%d reads, want 3: of the name, of the selector, and that again a second later", reads)
		}
	})
}

// A request with time left waits for a response that takes longer than one read may. It gives back
// its place meanwhile. S15.10.
func TestALateAnswerIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{takes: 12 * time.Second}
		aside, back := 0, 0
		var slowest time.Duration
		r := reader(params.Options{
			StepAside: func(context.Context) func() { aside++; return func() { back++ } },
			Observe:   func(took time.Duration) { slowest = max(slowest, took) },
		}, s)
		ctx, cancel := context.WithTimeout(t.Context(), 34*time.Second)
		defer cancel()
		if _, err := r.Get(ctx, configMaps, "shop", "limits"); err != nil {
			t.Error(err)
		}
		// Two reads end after 5 s and after 10 s; the third one may take 20 s.
		if n := s.reads.Load(); n != 3 || slowest != 12*time.Second || aside != int(n) || back != aside {
			t.Errorf("%d reads, the slowest took %s; stepped aside %d times and came back %d times", n, slowest, aside, back)
		}
	})
}
