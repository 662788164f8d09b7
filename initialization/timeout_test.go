package initialization

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

// only reports whether a name is one of the given.
func only(names ...string) func(string) bool {
	return func(name string) bool { return slices.Contains(names, name) }
}

func TestTimeouts(t *testing.T) {
	t.Run("S11.45 Ignore: removed one by one, each after its own time; the creator gets the object", func(t *testing.T) {
		e := newEnv(t)
		w := e.begin(e.ctx, object("o", "a.example.com", "b.example.com"))
		e.clock.Step(5*time.Second - time.Millisecond)
		if got := e.pending("o"); got != "a b" {
			t.Errorf("before its time: the object is %s", got)
		}
		e.clock.Step(time.Millisecond)
		if ev := e.awaitEvent(TimedOutIgnored); ev.Initializer != "a.example.com" || ev.After != 5*time.Second {
			t.Errorf("event %+v", ev)
		}
		e.await("b's clock runs", e.clock.HasWaiters)
		e.clock.Step(5*time.Second - time.Millisecond)
		if got := e.pending("o"); got != "b" {
			t.Errorf("before b's time: the object is %s", got)
		}
		e.clock.Step(time.Millisecond)
		obj, err := w.result(t)
		if err != nil {
			t.Fatal(err)
		}
		if got := show(t, obj.(*corev1.ConfigMap)); got != "initialized" {
			t.Errorf("the object is %s", got)
		}
		if n := e.count(Acted); n != 0 {
			t.Errorf("%d initializers count as having acted", n)
		}
	})
	t.Run("S11.44 the clock starts again when a predecessor is gone", func(t *testing.T) {
		e := newEnv(t)
		e.create(object("o", "a.example.com", "b.example.com"), nil)
		e.clock.Step(4 * time.Second)
		e.write(e.store, "o", setField(field("b.example.com")))
		if ev := e.awaitEvent(Acted); ev.Initializer != "a.example.com" || ev.After != 4*time.Second {
			t.Errorf("event %+v", ev)
		}
		e.clock.Step(4 * time.Second)
		if got := e.pending("o"); got != "b" {
			t.Errorf("the object is %s", got)
		}
		e.clock.Step(time.Second)
		e.awaitPending("o", "initialized")
	})
	t.Run("S11.44 changes of something else do not start it again", func(t *testing.T) {
		e := newEnv(t)
		e.create(object("o", "a.example.com"), nil)
		e.clock.Step(4 * time.Second)
		e.write(e.store, "o", func(c *corev1.ConfigMap) { c.Data = map[string]string{"x": "y"} })
		e.clock.Step(time.Second)
		e.awaitPending("o", "initialized")
	})
	t.Run("S11.44 the timeout is an option", func(t *testing.T) {
		e := newEnv(t, func(o *Options) { o.Timeout = time.Minute })
		e.create(object("o", "a.example.com"), nil)
		e.clock.Step(59 * time.Second)
		if got := e.pending("o"); got != "a" {
			t.Errorf("the object is %s", got)
		}
		e.clock.Step(time.Second)
		e.awaitPending("o", "initialized")
	})
	t.Run("S11.46 Fail: 504 names it, and the object stays as it is", func(t *testing.T) {
		e := newEnv(t, func(o *Options) { o.MustAct = only("a.example.com") })
		w := e.begin(e.ctx, object("o", "a.example.com", "b.example.com"))
		e.clock.Step(5 * time.Second)
		_, err := w.result(t)
		refused(t, err, 504, `initializer "a.example.com" did not act`)
		e.clock.Step(time.Hour)
		if got := e.pending("o"); got != "a b" {
			t.Errorf("the object is %s", got)
		}
		if n := e.count(TimedOutFailed); n != 1 {
			t.Errorf("%d timeouts", n)
		}
		e.await("nothing is followed", func() bool { return e.followed() == 0 })
		// The initializer acts after all, and the next one gets its full time.
		e.write(e.store, "o", setField(field("b.example.com")))
		e.clock.Step(5 * time.Second)
		e.awaitPending("o", "initialized")
	})
	t.Run("S11.47 the policy is looked up when the time has passed", func(t *testing.T) {
		var fail atomic.Bool
		fail.Store(true)
		e := newEnv(t, func(o *Options) { o.MustAct = func(string) bool { return fail.Load() } })
		e.create(object("o", "a.example.com"), nil)
		fail.Store(false)
		e.clock.Step(5 * time.Second)
		e.awaitPending("o", "initialized")
	})
	t.Run("S11.47 Fail that becomes Ignore while objects wait frees them", func(t *testing.T) {
		var fail atomic.Bool
		fail.Store(true)
		e := newEnv(t, func(o *Options) { o.MustAct = func(name string) bool { return name == "a.example.com" && fail.Load() } })
		w := e.begin(e.ctx, object("o", "a.example.com"))
		e.create(object("p", "a.example.com"), nil)
		e.create(object("q", "a.example.com"), nil)
		e.clock.Step(5 * time.Second)
		_, err := w.result(t)
		refused(t, err, 504, `initializer "a.example.com" did not act`)
		e.await("nothing is followed", func() bool { return e.followed() == 0 })
		// One object is initialized after all.
		e.write(e.store, "q", setField(nil))
		e.await("the stuck are looked at later", e.clock.HasWaiters)
		fail.Store(false)
		e.clock.Step(5 * time.Second)
		e.await("the others are followed again", func() bool { return e.followed() == 2 })
		if got := e.pending("o"); got != "a" {
			t.Errorf("before the initializer had its time once more: the object is %s", got)
		}
		e.clock.Step(5 * time.Second)
		e.awaitPending("o", "initialized")
		e.awaitPending("p", "initialized")
	})
	for _, again := range []string{"before the restart", "after the restart"} {
		t.Run("S11.68 Fail that becomes Ignore "+again+" frees the objects of the earlier server", func(t *testing.T) {
			var fail atomic.Bool
			fail.Store(true)
			mustAct := func(o *Options) { o.MustAct = func(name string) bool { return name == "a.example.com" && fail.Load() } }
			one := newEnv(t, mustAct)
			o := object("o", "a.example.com", "b.example.com")
			o.CreationTimestamp = metav1.NewTime(one.clock.Now().Add(-time.Minute))
			one.create(o, nil)
			one.clock.Step(5 * time.Second)
			one.await("nothing is followed", func() bool { return one.followed() == 0 })
			one.end()
			fail.Store(again == "after the restart")
			two := newEnvAt(t, one.prefix, mustAct, func(o *Options) { o.Clock = clocktesting.NewFakeClock(one.clock.Now()) })
			// The first use of the resource opens its watch cache.
			if got := two.pending("o"); got != "a b" {
				t.Fatalf("after the restart, the object is %s", got)
			}
			two.await("the object is remembered", two.clock.HasWaiters)
			if fail.Load() {
				two.clock.Step(5 * time.Second)
				two.await("the object is looked at again", two.clock.HasWaiters)
				if got := two.pending("o"); got != "a b" {
					t.Errorf("while the policy is Fail, the object is %s", got)
				}
				fail.Store(false)
			}
			two.await("each initializer had its time", func() bool {
				two.clock.Step(5 * time.Second)
				return two.pending("o") == "initialized"
			})
		})
	}
	t.Run("S11.45 one that acted in the last moment is left alone", func(t *testing.T) {
		e := newEnv(t)
		e.create(object("o", "a.example.com", "b.example.com"), nil)
		e.raw.updating = func() error {
			// Another server's write comes first.
			e.raw.updating = nil
			e.write(e.raw.Interface, "o", setField(field("b.example.com")))
			return nil
		}
		e.clock.Step(5 * time.Second)
		e.await("b's clock runs", e.clock.HasWaiters)
		if got := e.pending("o"); got != "b" {
			t.Errorf("the object is %s", got)
		}
		e.clock.Step(5 * time.Second)
		e.awaitPending("o", "initialized")
		// The metric follows after the object is stored.
		n := 0
		e.await("one timeout", func() bool { n += e.count(TimedOutIgnored); return n == 1 })
	})
	t.Run("S11.45 when storage is away it is tried again", func(t *testing.T) {
		e := newEnv(t)
		e.create(object("o", "a.example.com"), nil)
		e.raw.updating = func() error { e.raw.updating = nil; return errors.New("away") }
		e.clock.Step(5 * time.Second)
		e.await("its clock runs again", e.clock.HasWaiters)
		if got := e.pending("o"); got != "a" {
			t.Errorf("the object is %s", got)
		}
		e.clock.Step(5 * time.Second)
		e.awaitPending("o", "initialized")
	})
	t.Run("S11.48 it outlives the request", func(t *testing.T) {
		e := newEnv(t)
		ctx, gone := context.WithCancel(e.ctx)
		w := e.begin(ctx, object("o", "a.example.com"))
		e.awaitEvent(WaitBegan)
		gone()
		_, err := w.result(t)
		refused(t, err, 504, "waits for initializer")
		e.clock.Step(5 * time.Second)
		e.awaitPending("o", "initialized")
	})
	t.Run("S11.48 the number of timers is bounded, that of creators is not", func(t *testing.T) {
		e := newEnv(t, func(o *Options) { o.maxTimers = 1 })
		e.create(object("timed", "a.example.com"), nil)
		w := e.begin(e.ctx, object("untimed", "a.example.com"))
		e.awaitEvent(WaitBegan)
		e.create(object("neither", "a.example.com"), nil)
		if n := e.followed(); n != 2 {
			t.Errorf("%d objects are followed", n)
		}
		e.clock.Step(5 * time.Second)
		e.awaitPending("timed", "initialized")
		e.write(e.store, "untimed", setField(nil))
		if _, err := w.result(t); err != nil {
			t.Error(err)
		}
		if got := e.pending("neither"); got != "a" {
			t.Errorf("neither: the object is %s", got)
		}
		// The timer that ended gave its place back.
		e.await("the timer is gone", func() bool { return e.d.timers.Load() == 0 })
		e.create(object("next", "a.example.com"), nil)
		e.clock.Step(5 * time.Second)
		e.awaitPending("next", "initialized")
	})
	t.Run("S11.49 the removal keeps the rest of the object", func(t *testing.T) {
		e := newEnv(t)
		o := object("o", "a.example.com")
		o.Data = map[string]string{"x": "y"}
		o.Annotations["other"] = "1"
		e.create(o, nil)
		e.clock.Step(5 * time.Second)
		e.awaitPending("o", "initialized")
		got := e.get("o", Reading{})
		if got.Data["x"] != "y" || len(got.Annotations) != 1 || got.UID != o.UID {
			t.Errorf("got %v", got)
		}
	})
	t.Run("S11.45 a real clock", func(t *testing.T) {
		e := newEnv(t, func(o *Options) { o.Clock, o.Timeout = clock.RealClock{}, 50*time.Millisecond })
		begin := time.Now()
		if _, err := e.begin(e.ctx, object("o", "a.example.com", "b.example.com")).result(t); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took < 100*time.Millisecond {
			t.Errorf("initialized after %s", took)
		}
	})
}

func TestParallelInitializers(t *testing.T) {
	parallel := func(o *Options) { o.Parallel = only("p.example.com", "q.example.com", "r.example.com") }
	t.Run("each member of the leading group has its time", func(t *testing.T) {
		e := newEnv(t, parallel, func(o *Options) { o.MustAct = only("q.example.com") })
		w := e.begin(e.ctx, object("o", "p.example.com", "q.example.com", "plain.example.com", "r.example.com"))
		e.clock.Step(5 * time.Second)
		_, err := w.result(t)
		refused(t, err, 504, `"q.example.com" did not act`)
		e.awaitPending("o", "q plain r")
		e.clock.Step(time.Hour)
		if got := e.pending("o"); got != "q plain r" {
			t.Errorf("the object is %s", got)
		}
	})
	t.Run("members act in any order, and the clock of the others goes on", func(t *testing.T) {
		e := newEnv(t, parallel)
		e.create(object("o", "p.example.com", "q.example.com", "plain.example.com"), nil)
		e.clock.Step(3 * time.Second)
		e.write(e.store, "o", setField(field("p.example.com", "plain.example.com")))
		if ev := e.awaitEvent(Acted); ev.Initializer != "q.example.com" || ev.After != 3*time.Second {
			t.Errorf("event %+v", ev)
		}
		e.clock.Step(2 * time.Second)
		e.awaitPending("o", "plain")
		e.await("plain's clock runs", e.clock.HasWaiters)
		e.clock.Step(5 * time.Second)
		e.awaitPending("o", "initialized")
	})
	t.Run("behind a plain one nobody's clock runs", func(t *testing.T) {
		e := newEnv(t, parallel)
		e.create(object("o", "plain.example.com", "p.example.com", "q.example.com"), nil)
		e.clock.Step(5 * time.Second)
		e.awaitPending("o", "p q")
		e.await("their clocks run", e.clock.HasWaiters)
		e.clock.Step(5 * time.Second)
		e.awaitPending("o", "initialized")
	})
}

func TestReadRepair(t *testing.T) {
	const old = 10*time.Minute + 30*time.Second
	setup := func(t *testing.T, age time.Duration, options ...func(*Options)) *env {
		// The object was left behind by a server that has ended.
		before := newEnv(t)
		o := object("o", "a.example.com", "b.example.com")
		o.CreationTimestamp.Time = before.clock.Now().Add(-age)
		before.create(o, nil)
		before.d.Close()
		return newEnvAt(t, before.prefix, append(options, func(o *Options) { o.Clock = before.clock })...)
	}
	for _, test := range []struct {
		name    string
		age     time.Duration
		reading Reading
		mustAct func(string) bool
		want    string
		stored  string
	}{
		{name: "S11.50 a get removes the first", age: old, reading: Reading{Repair: true}, want: "b", stored: "b"},
		{name: "S11.50 a get that hides does so too", age: old, reading: Reading{Repair: true, Hide: true}, want: "absent", stored: "b"},
		{name: "S11.51 not before the margin for clocks has passed", age: old - 2*time.Second, reading: Reading{Repair: true}, want: "a b", stored: "a b"},
		{name: "S11.51 not from the future", age: -time.Hour, reading: Reading{Repair: true}, want: "a b", stored: "a b"},
		{name: "S11.50 not one that must act", age: old, reading: Reading{Repair: true}, mustAct: only("a.example.com"), want: "a b", stored: "a b"},
		{name: "S11.36 the server's own reads change nothing", age: old, want: "a b", stored: "a b"},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := setup(t, test.age, func(o *Options) { o.MustAct = test.mustAct })
			if got := show(t, e.get("o", test.reading)); got != test.want {
				t.Errorf("read %s, want %s", got, test.want)
			}
			if got := e.pending("o"); got != test.stored {
				t.Errorf("stored is %s, want %s", got, test.stored)
			}
		})
	}
	t.Run("S11.50 one removal per get; the last one makes it visible", func(t *testing.T) {
		e := setup(t, old)
		if got := e.get("o", Reading{Repair: true, Hide: true}); got != nil {
			t.Errorf("first get: %s", show(t, got))
		}
		if got := show(t, e.get("o", Reading{Repair: true, Hide: true})); got != "initialized" {
			t.Errorf("second get: %s", got)
		}
		if n := e.count(Repaired); n != 2 {
			t.Errorf("%d repairs", n)
		}
	})
	t.Run("S11.52 what cannot be repaired is served as it was read", func(t *testing.T) {
		e := setup(t, old)
		e.raw.updating = func() error { return errors.New("away") }
		if got := show(t, e.get("o", Reading{Repair: true})); got != "a b" {
			t.Errorf("read %s", got)
		}
	})
	t.Run("S11.50 gets at the same time remove nothing twice", func(t *testing.T) {
		e := setup(t, old)
		done := make(chan string)
		for range 8 {
			go func() {
				out := &corev1.ConfigMap{}
				if err := e.store.Get(WithReading(e.ctx, Reading{Repair: true}), keyOf("o"), apistorage.GetOptions{}, out); err != nil {
					done <- err.Error()
					return
				}
				done <- ""
			}()
		}
		for range 8 {
			if text := <-done; text != "" {
				t.Error(text)
			}
		}
		removed := map[string]int{"b": 1, "initialized": 2}[e.pending("o")]
		if n := e.count(Repaired); n == 0 || n != removed {
			t.Errorf("%d repairs, and %d are removed", n, removed)
		}
	})
}

// Timers do not delay Close, and leave no goroutine behind.
func TestCloseWithManyTimers(t *testing.T) {
	e := newEnv(t)
	for i := range 50 {
		e.create(object(fmt.Sprint("o", i), "a.example.com"), nil)
	}
	e.clock.Step(5 * time.Second)
	e.d.Close()
	e.clock.Step(time.Hour)
	e.d.spawn(func() { t.Error("something runs after the end") })
	e.d.work.Wait()
}
