package initialization

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
)

func TestCreatorsWait(t *testing.T) {
	for _, test := range []struct {
		name string
		// act runs while the creator waits; raw is storage without the decorator, as another server writes.
		act  func(e *env, raw apistorage.Interface)
		want string
		code int32
		text string
	}{
		{name: "S11.25 (a) initialized by this server",
			act:  func(e *env, _ apistorage.Interface) { e.write(e.store, "o", setField(nil)) },
			want: "initialized"},
		{name: "S11.25 (a) initialized by another server",
			act:  func(e *env, raw apistorage.Interface) { e.write(raw, "o", setField(nil)) },
			want: "initialized"},
		{name: "S11.24 changes that leave it uninitialized do not end the waiting",
			act: func(e *env, raw apistorage.Interface) {
				for i := range 5 {
					e.write(e.store, "o", func(c *corev1.ConfigMap) { c.Data = map[string]string{"i": fmt.Sprint(i)} })
				}
				e.write(raw, "o", setField(field("b.example.com")))
				e.write(e.store, "o", setField(nil))
			},
			want: "initialized"},
		{name: "S11.25 (b) a result of this server's is the answer",
			act:  func(e *env, _ apistorage.Interface) { e.write(e.store, "o", setField(failed(409, "too many"))) },
			code: 409, text: "too many"},
		{name: "S11.25 (b) a result of another server's is the answer",
			act:  func(e *env, raw apistorage.Interface) { e.write(raw, "o", setField(failed(409, "too many"))) },
			code: 409, text: "too many"},
		{name: "S11.25 (b) a result without a code is 500",
			act:  func(e *env, _ apistorage.Interface) { e.write(e.store, "o", setField(failed(0, "no reason"))) },
			code: 500, text: "no reason"},
		{name: "S11.25 (b) a result with a code of success is 500",
			act:  func(e *env, _ apistorage.Interface) { e.write(e.store, "o", setField(failed(204, "no content"))) },
			code: 500, text: "no content"},
		{name: "S11.25 (b) a result with a code that HTTP has not is 500",
			act:  func(e *env, _ apistorage.Interface) { e.write(e.store, "o", setField(failed(9999, "too much"))) },
			code: 500, text: "too much"},
		{name: "S11.25 (c) deleted",
			act: func(e *env, raw apistorage.Interface) {
				err := raw.Delete(e.ctx, keyOf("o"), &corev1.ConfigMap{}, nil, apistorage.ValidateAllObjectFunc, nil, apistorage.DeleteOptions{})
				if err != nil {
					e.t.Error(err)
				}
			},
			code: 500, text: "object deleted while waiting for creation"},
		{name: "S11.25 (e) a watch that ends is opened again",
			act: func(e *env, raw apistorage.Interface) {
				e.raw.breakWatches()
				e.write(raw, "o", setField(nil))
			},
			want: "initialized"},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := newEnv(t)
			w := e.begin(e.ctx, object("o", "a.example.com", "b.example.com"))
			e.awaitEvent(WaitBegan)
			test.act(e, e.raw.Interface)
			obj, err := w.result(t)
			if test.code != 0 {
				refused(t, err, test.code, test.text)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := show(t, obj.(*corev1.ConfigMap)); got != test.want {
				t.Errorf("the creator got an object that is %s, want %s", got, test.want)
			}
			e.await("nothing is followed", func() bool { return e.followed() == 0 })
			if n := e.d.timers.Load(); n != 0 {
				t.Errorf("%d timers are left", n)
			}
		})
	}
}

// A change of an object before the server begins to follow it is not missed.
func TestNothingIsMissedBetweenCreateAndWatch(t *testing.T) {
	for _, watching := range []bool{false, true} {
		t.Run(fmt.Sprintf("S11.24 watching already %v", watching), func(t *testing.T) {
			e := newEnv(t)
			if watching {
				e.begin(e.ctx, object("other", "a.example.com"))
			}
			e.raw.created = func(key string) {
				e.raw.created = nil
				e.write(e.raw.Interface, "o", setField(nil))
				if watching {
					// Let the watch pass the change.
					e.write(e.raw.Interface, "other", func(c *corev1.ConfigMap) { c.Data = map[string]string{"x": "y"} })
					tracker := e.store.(*store).tracker
					version, err := e.raw.GetCurrentResourceVersion(e.ctx)
					if err != nil {
						t.Fatal(err)
					}
					e.await("the watch is past the change", func() bool {
						tracker.mu.Lock()
						defer tracker.mu.Unlock()
						return tracker.mu.seen >= version
					})
				}
			}
			obj, err := e.begin(e.ctx, object("o", "a.example.com")).result(t)
			if err != nil {
				t.Fatal(err)
			}
			if got := show(t, obj.(*corev1.ConfigMap)); got != "initialized" {
				t.Errorf("the object is %s", got)
			}
		})
	}
}

func TestCreatorsAreAnsweredInTime(t *testing.T) {
	t.Run("S11.25 (f) the deadline names the initializer, and the object stays", func(t *testing.T) {
		e := newEnv(t)
		ctx, cancel := context.WithTimeout(e.ctx, answerBefore+100*time.Millisecond)
		defer cancel()
		_, err := e.begin(ctx, object("o", "a.example.com", "b.example.com")).result(t)
		refused(t, err, 504, `waits for initializer "a.example.com"`)
		if got := e.pending("o"); got != "a b" {
			t.Errorf("the object is %s", got)
		}
	})
	t.Run("S11.25 (f) parallel initializers are all named", func(t *testing.T) {
		e := newEnv(t, func(o *Options) { o.Parallel = func(string) bool { return true } })
		ctx, cancel := context.WithTimeout(e.ctx, answerBefore+100*time.Millisecond)
		defer cancel()
		_, err := e.begin(ctx, object("o", "a.example.com", "b.example.com")).result(t)
		refused(t, err, 504, `waits for initializers "a.example.com", "b.example.com"`)
	})
	t.Run("the end of the server is an answer", func(t *testing.T) {
		e := newEnv(t)
		w := e.begin(e.ctx, object("o", "a.example.com"))
		e.awaitEvent(WaitBegan)
		e.d.Close()
		_, err := w.result(t)
		refused(t, err, 503, "shutting down")
		e.clock.Step(time.Hour)
		if got := e.pending("o"); got != "a" {
			t.Errorf("a timer fired after the end: the object is %s", got)
		}
	})
	t.Run("before its end the server lets creators go, and goes on with what they wait for", func(t *testing.T) {
		e := newEnv(t)
		w := e.begin(e.ctx, object("o", "a.example.com"))
		e.awaitEvent(WaitBegan)
		e.d.Release()
		e.d.Release()
		_, err := w.result(t)
		refused(t, err, 503, "shutting down")
		e.clock.Step(5 * time.Second)
		e.awaitPending("o", "initialized")
	})
	t.Run("S11.26 who does not wait gets the object as it is", func(t *testing.T) {
		e := newEnv(t)
		if got := show(t, e.create(object("o", "a.example.com"), nil)); got != "a" {
			t.Errorf("the object is %s", got)
		}
	})
}

// With several watchers, the watch cache shares objects in a form that only encoders understand.
func TestCreatorsGetObjectsOfTheirOwn(t *testing.T) {
	e := newEnv(t)
	e.create(object("first"), nil)
	for range 5 {
		e.watcher(Reading{}, nil, "0")
	}
	w := e.begin(e.ctx, object("o", "a.example.com"))
	e.awaitEvent(WaitBegan)
	e.write(e.raw.Interface, "o", setField(nil))
	obj, err := w.result(t)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := obj.(*corev1.ConfigMap); !ok {
		t.Errorf("the creator got a %T", obj)
	}
}

func TestFailedInitialization(t *testing.T) {
	t.Run("S11.40 watchers see the result, then the deletion; finalizers do not hold it", func(t *testing.T) {
		e := newEnv(t)
		o := object("o", "a.example.com")
		o.Finalizers = []string{"example.com/hold"}
		created := e.create(o, nil)
		all := e.watcher(Reading{}, nil, created.ResourceVersion)
		plain := e.watcher(Reading{Hide: true}, nil, created.ResourceVersion)
		e.write(e.store, "o", setField(failed(403, "no")))
		for _, want := range []string{"MODIFIED o a failed", "DELETED o a failed"} {
			if got := e.next(all); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		if got := e.pending("o"); got != "absent" {
			t.Errorf("the object is %s", got)
		}
		e.create(object("marker"), nil)
		if got := e.next(plain); got != "ADDED marker initialized" {
			t.Errorf("a plain watcher got %q", got)
		}
		if ev := e.awaitEvent(Discarded); ev.Resource.Resource != "configmaps" {
			t.Errorf("event %+v", ev)
		}
	})
	t.Run("S11.28 a result from the beginning is the answer, and nothing is left", func(t *testing.T) {
		e := newEnv(t)
		o := object("o")
		initializers.Set(o, failed(400, "born dead"))
		_, err := e.begin(e.ctx, o).result(t)
		refused(t, err, 400, "born dead")
		if got := e.pending("o"); got != "absent" {
			t.Errorf("the object is %s", got)
		}
	})
	t.Run("S11.40 another object of the same name is left alone", func(t *testing.T) {
		e := newEnv(t)
		created := e.create(object("o", "a.example.com"), nil)
		e.store.(*store).discard(keyOf("o"), object("o", "a.example.com"))
		if got := e.pending("o"); got != "a" {
			t.Errorf("the object %s is %s", created.UID, got)
		}
	})
	t.Run("S11.53 a result that survived is cleared away by a get", func(t *testing.T) {
		e := newEnv(t)
		e.create(object("o", "a.example.com"), nil)
		e.write(e.raw.Interface, "o", setField(failed(403, "no")))
		if got := e.get("o", Reading{Repair: true}); got != nil {
			t.Errorf("the object is %s", show(t, got))
		}
		if got := e.pending("o"); got != "absent" {
			t.Errorf("the object is %s", got)
		}
	})
}

// A webhook may leave an empty list behind, on which no initializer would ever act.
func TestAnEmptyListIsNoList(t *testing.T) {
	e := newEnv(t)
	o := object("o")
	initializers.Set(o, field())
	if got := show(t, e.create(o, nil)); got != "initialized" {
		t.Errorf("S11.38 on create: the object is %s", got)
	}
	e.create(object("p", "a.example.com"), nil)
	e.write(e.store, "p", setField(field()))
	if got := e.pending("p"); got != "initialized" {
		t.Errorf("S11.38 on update: the object is %s", got)
	}
}

func TestObjectsOfOtherServersAreFollowed(t *testing.T) {
	t.Run("S11.48 a client that changes the turn starts the clock", func(t *testing.T) {
		one := newEnv(t)
		one.create(object("o", "a.example.com", "b.example.com"), nil)
		two := newEnvAt(t, one.prefix)
		two.write(two.store, "o", func(c *corev1.ConfigMap) { c.Data = map[string]string{"x": "y"} })
		if n := two.followed(); n != 0 {
			t.Errorf("an update that changes no turn: %d objects are followed", n)
		}
		two.write(two.store, "o", setField(field("b.example.com")))
		if n := two.followed(); n != 1 {
			t.Errorf("%d objects are followed", n)
		}
		two.clock.Step(6 * time.Second)
		two.awaitPending("o", "initialized")
	})
	t.Run("S11.23 an object that an update creates is timed", func(t *testing.T) {
		e := newEnv(t)
		out := &corev1.ConfigMap{}
		err := e.store.GuaranteedUpdate(e.ctx, keyOf("o"), out, true, nil,
			func(_ runtimeObject, _ apistorage.ResponseMeta) (runtimeObject, *uint64, error) {
				return object("o", "a.example.com"), nil, nil
			}, nil)
		if err != nil {
			t.Fatal(err)
		}
		e.clock.Step(6 * time.Second)
		e.awaitPending("o", "initialized")
	})
	t.Run("both servers' timers do no harm", func(t *testing.T) {
		one := newEnv(t)
		one.create(object("o", "a.example.com", "b.example.com", "c.example.com"), nil)
		two := newEnvAt(t, one.prefix)
		two.write(two.store, "o", setField(field("b.example.com", "c.example.com")))
		one.await("one has seen it", func() bool {
			one.store.(*store).tracker.mu.Lock()
			defer one.store.(*store).tracker.mu.Unlock()
			for _, entry := range one.store.(*store).tracker.mu.entries {
				return entry.turns[0].name == "b.example.com"
			}
			return false
		})
		one.clock.Step(6 * time.Second)
		two.clock.Step(6 * time.Second)
		one.awaitPending("o", "c")
	})
}

func TestMetadataOfTheAnswerIsTheStored(t *testing.T) {
	e := newEnv(t)
	w := e.begin(e.ctx, object("o", "a.example.com"))
	e.awaitEvent(WaitBegan)
	e.write(e.store, "o", func(c *corev1.ConfigMap) {
		c.Labels = map[string]string{"by": "a"}
		initializers.Set(c, nil)
	})
	obj, err := w.result(t)
	if err != nil {
		t.Fatal(err)
	}
	got := obj.(*corev1.ConfigMap)
	stored := e.get("o", Reading{})
	if got.ResourceVersion != stored.ResourceVersion || !metav1.HasLabel(got.ObjectMeta, "by") {
		t.Errorf("got %s with labels %v, stored is %s", got.ResourceVersion, got.Labels, stored.ResourceVersion)
	}
}
