package initialization

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apistorage "k8s.io/apiserver/pkg/storage"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
)

// paired is a config map that waits for the initializers. A * marks an initializer with its own finalizer.
func paired(name string, waitingFor ...string) *corev1.ConfigMap {
	c := object(name)
	f := &initializers.Initializers{}
	for _, w := range waitingFor {
		w, has := strings.CutSuffix(w, "*")
		f.Pending = append(f.Pending, initializers.Initializer{Name: w + ".example.com"})
		if has {
			f.Paired = append(f.Paired, initializers.Pair{Name: w + ".example.com", Finalizer: "example.com/" + w})
			c.Finalizers = append(c.Finalizers, "example.com/"+w)
		}
	}
	initializers.Set(c, f)
	return c
}

// state describes a stored object: its pending initializers, its finalizers, claims (+), a failure (!) and a
// deletion (-).
func (e *env) state(name string) string {
	e.t.Helper()
	c := e.get(name, Reading{})
	if c == nil {
		return "gone"
	}
	text := show(e.t, c)
	f, err := initializers.Get(c)
	if err != nil {
		e.t.Fatal(err)
	}
	for _, finalizer := range c.Finalizers {
		text += " " + strings.TrimPrefix(finalizer, "example.com/") + "*"
		if f != nil && slices.ContainsFunc(f.Paired, func(p initializers.Pair) bool { return p.Finalizer == finalizer && p.Claimed }) {
			text += "+"
		}
	}
	if f != nil && f.Result != nil {
		text += " !"
	}
	if c.DeletionTimestamp != nil {
		text += " -"
	}
	return text
}

var errNow = errors.New("delete now")

// update changes an object as a registry does: an object in deletion disappears with its last finalizer.
// version is the expected version; "" means any.
func (e *env) update(name, version string, change func(*corev1.ConfigMap)) error {
	return e.registry(name, version, func(c *corev1.ConfigMap) bool {
		change(c)
		return c.DeletionTimestamp != nil && len(c.Finalizers) == 0
	})
}

// remove deletes an object as a registry does: finalizers delay that.
func (e *env) remove(name string) error {
	return e.registry(name, "", func(c *corev1.ConfigMap) bool {
		if c.DeletionTimestamp == nil {
			now, none := metav1.NewTime(e.clock.Now()), int64(0)
			c.DeletionTimestamp, c.DeletionGracePeriodSeconds = &now, &none
		}
		return len(c.Finalizers) == 0
	})
}

func (e *env) registry(name, version string, change func(*corev1.ConfigMap) (deleteNow bool)) error {
	out := &corev1.ConfigMap{}
	var preconditions apistorage.Preconditions
	if version != "" {
		preconditions.ResourceVersion = &version
	}
	err := e.store.GuaranteedUpdate(e.ctx, keyOf(name), out, false, &preconditions, apistorage.SimpleUpdate(func(obj runtime.Object) (runtime.Object, error) {
		if change(obj.(*corev1.ConfigMap)) {
			return nil, errNow
		}
		return obj, nil
	}), nil)
	if errors.Is(err, errNow) {
		err = e.store.Delete(e.ctx, keyOf(name), out, &preconditions, apistorage.ValidateAllObjectFunc, nil, apistorage.DeleteOptions{})
	}
	return err
}

// The changes that initializers and other clients make to the field of an object.
func claim(name string) func(*corev1.ConfigMap) {
	return changing(func(f *initializers.Initializers) {
		for i := range f.Paired {
			f.Paired[i].Claimed = f.Paired[i].Claimed || f.Paired[i].Name == name+".example.com"
		}
	})
}

func act(name string) func(*corev1.ConfigMap) {
	return changing(func(f *initializers.Initializers) {
		f.Pending = slices.DeleteFunc(f.Pending, func(i initializers.Initializer) bool { return i.Name == name+".example.com" })
	})
}

func reject(c *corev1.ConfigMap) {
	changing(func(f *initializers.Initializers) { f.Result = failed(403, "no").Result })(c)
}

func changing(change func(*initializers.Initializers)) func(*corev1.ConfigMap) {
	return func(c *corev1.ConfigMap) {
		f, err := initializers.Get(c)
		if err != nil || f == nil {
			return
		}
		change(f)
		initializers.Set(c, f)
	}
}

func release(name string) func(*corev1.ConfigMap) {
	return func(c *corev1.ConfigMap) {
		c.Finalizers = slices.DeleteFunc(slices.Clone(c.Finalizers), func(f string) bool { return f == "example.com/"+name })
	}
}

// The states of an object with finalizers of initializers (S11.56), and the effect of each event on each state.
func TestStatesOfRelease(t *testing.T) {
	deletes := func(e *env) error { return e.remove("o") }
	writes := func(change func(*corev1.ConfigMap)) func(*env) error {
		return func(e *env) error { return e.update("o", "", change) }
	}
	later := func(d time.Duration) func(*env) error {
		return func(e *env) error { e.clock.Step(d); return nil }
	}
	users := func(c *corev1.ConfigMap) *corev1.ConfigMap {
		c.Finalizers = append(c.Finalizers, "example.com/user")
		return c
	}
	type step struct {
		what string
		do   func(*env) error
		want string
	}
	claims, acts, rejects := writes(claim("a")), writes(act("a")), writes(reject)
	for _, c := range []struct {
		name   string
		object *corev1.ConfigMap
		must   bool
		steps  []step
	}{
		{"S11.54 an initializer that acts keeps the finalizer", paired("o", "a*"), false, []step{
			{"a acts", acts, "initialized a*"}, {"deleted", deletes, "initialized a* -"}, {"released", writes(release("a")), "gone"},
		}},
		{"S11.56 a later initializer rejects: the object waits for who has acted", paired("o", "a*", "b"), false, []step{
			{"a acts", acts, "b a*"}, {"b rejects", rejects, "b a* ! -"}, {"released", writes(release("a")), "gone"},
		}},
		{"S11.56 and for who has claimed", paired("o", "a*", "b"), false, []step{
			{"a claims", claims, "a b a*+"}, {"somebody rejects", rejects, "a b a*+ ! -"}, {"released", writes(release("a")), "gone"},
		}},
		{"S11.56 and not for who has not", paired("o", "a*", "b*"), false, []step{
			{"a acts", acts, "b a* b*"}, {"b rejects", rejects, "b a* ! -"}, {"released", writes(release("a")), "gone"},
		}},
		{"S11.40 nobody has acted: it goes at once", users(paired("o", "a*", "b*")), false, []step{{"rejected", rejects, "gone"}}},
		{"S11.40 finalizers of users do not hold it", users(paired("o", "a*", "b")), false, []step{
			{"a acts", acts, "b a* user*"}, {"b rejects", rejects, "b a* ! -"}, {"released", writes(release("a")), "gone"},
		}},
		{"S11.56 two have acted: both must release", paired("o", "a*", "b*", "c"), false, []step{
			{"a acts", acts, "b c a* b*"}, {"b acts", writes(act("b")), "c a* b*"}, {"c rejects", rejects, "c a* b* ! -"},
			{"b releases", writes(release("b")), "c a* ! -"}, {"a releases", writes(release("a")), "gone"},
		}},
		{"S11.60 deleted before anybody acted: it goes at once", paired("o", "a*", "b*"), false, []step{{"deleted", deletes, "gone"}}},
		{"S11.60 deleted after a claim: it waits", paired("o", "a*", "b*"), false, []step{
			{"a claims", claims, "a b a*+ b*"}, {"deleted", deletes, "a b a*+ -"}, {"released", writes(release("a")), "gone"},
		}},
		{"S11.60 a deletion leaves finalizers of users alone", users(paired("o", "a*")), false, []step{
			{"deleted", deletes, "a user* -"}, {"released", writes(release("user")), "gone"},
		}},
		{"S11.57 Ignore: who did not act in time loses the finalizer", paired("o", "a*", "b"), false, []step{
			{"time passes", later(5 * time.Second), "b"},
		}},
		{"S11.57 but not who has claimed", paired("o", "a*", "b"), false, []step{
			{"a claims", claims, "a b a*+"}, {"time passes", later(5 * time.Second), "b a*+"}, {"b rejects", rejects, "b a*+ ! -"},
			{"released", writes(release("a")), "gone"},
		}},
		{"S11.46 Fail: nothing is removed", paired("o", "a*", "b"), true, []step{
			{"time passes", later(time.Minute), "a b a*"}, {"deleted", deletes, "gone"},
		}},
		{"S11.55 a claim is not taken back", paired("o", "a*"), false, []step{
			{"a claims", claims, "a a*+"},
			{"somebody does not know of it", writes(changing(func(f *initializers.Initializers) { f.Paired = nil })), "a a*+"},
			{"or invents others", writes(changing(func(f *initializers.Initializers) {
				f.Paired = append(f.Paired, initializers.Pair{Name: "x.example.com", Finalizer: "example.com/x", Claimed: true})
			})), "a a*+"},
			{"rejected", rejects, "a a*+ ! -"}, {"released", writes(release("a")), "gone"},
		}},
		{"S11.55 who removes the finalizer early has nothing to release", paired("o", "a*", "b"), false, []step{
			{"a claims", claims, "a b a*+"}, {"and drops it", writes(release("a")), "a b"}, {"rejected", rejects, "gone"},
		}},
		{"S11.56 while it is held nothing times out", paired("o", "a*", "b"), false, []step{
			{"a claims", claims, "a b a*+"}, {"deleted", deletes, "a b a*+ -"}, {"time passes", later(time.Minute), "a b a*+ -"},
			{"released", writes(release("a")), "gone"},
		}},
		{"S11.59 it is held for a time and no longer", paired("o", "a*", "b"), false, []step{
			{"a acts", acts, "b a*"}, {"b rejects", rejects, "b a* ! -"}, {"not yet", later(time.Hour - time.Minute), "b a* ! -"},
			{"an hour", later(time.Minute + time.Second), "gone"},
		}},
		{"S11.59 finalizers of users hold what was deleted for longer", users(paired("o", "a*", "b")), true, []step{
			{"a acts", acts, "b a* user*"}, {"deleted", deletes, "b a* user* -"}, {"an hour", later(time.Hour + time.Second), "b user* -"},
			{"released", writes(release("user")), "gone"},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, func(o *Options) { o.MustAct = func(string) bool { return c.must } })
			e.create(c.object, nil)
			for _, s := range c.steps {
				if err := s.do(e); err != nil {
					t.Fatalf("%s: %v", s.what, err)
				}
				e.await(fmt.Sprintf("%s: %s, not %s", s.what, s.want, e.state("o")), func() bool { return e.state("o") == s.want })
			}
			e.await("nothing is followed", func() bool {
				return e.followed() == 0 || strings.HasPrefix(e.state("o"), "initialized") || e.state("o") == "b"
			})
		})
	}
}

func TestWhoIsHeldIsHidden(t *testing.T) {
	e := newEnv(t)
	w := e.watcher(Reading{Hide: true}, nil, "")
	creator := e.begin(e.ctx, paired("o", "a*", "b"))
	if err := e.update("o", "", act("a")); err != nil {
		t.Fatal(err)
	}
	if err := e.update("o", "", reject); err != nil {
		t.Fatal(err)
	}
	_, err := creator.result(t)
	refused(t, err, 403, "no")
	if got := e.state("o"); got != "b a* ! -" {
		t.Fatalf("S11.58: the creator was answered when the object was %s", got)
	}
	if e.get("o", Reading{Hide: true, Repair: true}) != nil {
		t.Error("S11.56: a get shows it")
	}
	if err := e.update("o", "", release("a")); err != nil {
		t.Fatal(err)
	}
	e.create(object("other"), nil)
	if got := e.next(w); !strings.HasPrefix(got, "ADDED other") {
		t.Errorf("S11.56: a watch shows %s", got)
	}

	creator = e.begin(e.ctx, paired("p", "a*"))
	if err := e.update("p", "", claim("a")); err != nil {
		t.Fatal(err)
	}
	if err := e.remove("p"); err != nil {
		t.Fatal(err)
	}
	_, err = creator.result(t)
	refused(t, err, 500, "deleted while waiting")
	if got := e.state("p"); got != "a a*+ -" {
		t.Errorf("S11.58: the creator was answered when the object was %s", got)
	}
}

// S11.59: the next server whose watch cache has an object that another server left behind gives
// it up in time, also if no client reads the object by name.
func TestHeldObjectsAreFoundAgain(t *testing.T) {
	e := newEnv(t)
	e.create(paired("o", "a*", "b"), nil)
	if err := e.update("o", "", act("a")); err != nil {
		t.Fatal(err)
	}
	if err := e.update("o", "", reject); err != nil {
		t.Fatal(err)
	}
	e.end()
	next := newEnvAt(t, e.prefix, func(o *Options) { o.Clock = e.clock })
	next.create(object("other"), nil)
	next.await("the object is followed", func() bool { return next.followed() == 1 })
	next.clock.Step(time.Hour + time.Second)
	if ev := next.awaitEvent(Abandoned); ev.Initializer != "a.example.com" || ev.Finalizer != "example.com/a" || ev.Object.(*corev1.ConfigMap).Name != "o" {
		t.Errorf("event %+v", ev)
	}
	next.await("it is gone", func() bool { return next.state("o") == "gone" })
	if n := next.count(Abandoned); n != 0 {
		t.Errorf("%d more events", n)
	}
}

// S11.61: after any crashes of initializers and servers, the allocations of an initializer for an object are
// released exactly once, after the object was deleted or failed.
func TestWhatIsAllocatedIsReleasedOnce(t *testing.T) {
	for seed := range uint64(120) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			newHistory(t, seed).run()
		})
	}
}

// history is one object's life, with crashes.
type history struct {
	*env
	random *rand.Rand
	must   bool
	// allocated is the outside system: the allocations of initializers for the object.
	allocated map[string]bool
	released  map[string]int
	// dying counts the writes that the server has left; 0 means that it lives on.
	dying atomic.Int64
	log   []string
}

func newHistory(t *testing.T, seed uint64) *history {
	h := &history{random: rand.New(rand.NewPCG(seed, 1)), allocated: map[string]bool{}, released: map[string]int{}}
	h.must = h.random.IntN(2) == 0
	h.env = newEnv(t, h.options(clocktesting.NewFakeClock(time.Now())))
	h.raw.write = h.write
	return h
}

func (h *history) options(clock *clocktesting.FakeClock) func(*Options) {
	return func(o *Options) {
		o.Clock, o.MustAct = clock, func(string) bool { return h.must }
	}
}

var errCrashed = errors.New("the server has crashed")

// write is a write of a server, which may die before it or after it.
func (h *history) write(do func() error) error {
	left := h.dying.Load()
	switch {
	case left < 0:
		return errCrashed
	case left == 0:
		return do()
	}
	// Two values are one life: with an odd value the process dies before its write, with an even value after.
	if left = h.dying.Add(-2); left > 0 {
		return do()
	}
	h.dying.Store(-1)
	if left == 0 {
		_ = do()
	}
	return errCrashed
}

// restart replaces a server that has crashed.
func (h *history) restart() {
	if h.dying.Load() >= 0 {
		return
	}
	h.end()
	prefix, clock := h.prefix, h.clock
	h.env = newEnvAt(h.t, prefix, h.options(clock))
	h.dying.Store(0)
	h.raw.write = h.write
	h.note("the server restarts")
}

func (h *history) note(format string, args ...any) {
	h.log = append(h.log, fmt.Sprintf(format, args...))
}

// step lets the initializer act until it has done its part, crashes, or its write fails. It crashes after crash
// actions.
func (h *history) step(name string, rejects bool, crash int) {
	do := func(what string, f func() error) bool {
		if crash--; crash < 0 {
			return false
		}
		err := f()
		h.note("%s %s: %v; %s", name, what, err, h.describe())
		return err == nil
	}
	for {
		c := h.get("o", Reading{})
		if c == nil {
			return
		}
		f, err := initializers.Get(c)
		if err != nil {
			h.t.Fatal(err)
		}
		own := slices.Contains(c.Finalizers, "example.com/"+name)
		switch {
		case c.DeletionTimestamp != nil && own:
			if !do("releases", func() error {
				if h.allocated[name] {
					h.released[name]++
				}
				h.allocated[name] = false
				return nil
			}) {
				return
			}
			do("lets go", func() error { return h.update("o", c.ResourceVersion, release(name)) })
			return
		case c.DeletionTimestamp != nil, f == nil, f.Result != nil, len(f.Pending) == 0, f.Pending[0].Name != name+".example.com":
			return
		}
		i := slices.IndexFunc(f.Paired, func(p initializers.Pair) bool { return p.Name == name+".example.com" })
		if i >= 0 && !f.Paired[i].Claimed {
			if !do("claims", func() error { return h.update("o", c.ResourceVersion, claim(name)) }) {
				return
			}
			continue
		}
		if i >= 0 && !do("allocates", func() error {
			h.allocated[name] = true
			return nil
		}) {
			return
		}
		change := act(name)
		if rejects {
			change = reject
		}
		do("acts", func() error { return h.update("o", c.ResourceVersion, change) })
		return
	}
}

func (h *history) describe() string {
	if h.dying.Load() < 0 {
		return "unknown"
	}
	return h.state("o")
}

func (h *history) run() {
	rejecter := h.random.IntN(4)
	names := []string{"a", "b", "c"}
	h.create(paired("o", "a*", "b*", "c"), nil)
	for range 14 {
		h.restart()
		if h.dying.Load() == 0 && h.random.IntN(3) == 0 {
			h.dying.Store(int64(1 + h.random.IntN(6)))
		}
		switch n := h.random.IntN(12); {
		case n < 9:
			h.step(names[n%3], rejecter == n%3, h.random.IntN(6))
		case n == 9:
			h.note("deleted: %v", h.remove("o"))
		case n == 10:
			h.clock.Step(5 * time.Second)
			h.note("5 s pass")
		default:
			h.get("o", Reading{Hide: true, Repair: true})
		}
	}
	h.dying.CompareAndSwap(h.dying.Load(), -1)
	h.restart()
	h.await("the object is gone", func() bool {
		for i, name := range names {
			h.step(name, rejecter == i, 9)
		}
		switch c := h.get("o", Reading{Hide: true, Repair: true}); {
		case c != nil:
			_ = h.remove("o")
		case h.state("o") == "gone":
			return true
		default:
			h.clock.Step(11 * time.Minute / 100)
		}
		return false
	})
	for _, name := range names {
		if h.allocated[name] {
			h.t.Errorf("what %s allocated was not released", name)
		}
		if n := h.released[name]; n > 1 {
			h.t.Errorf("what %s allocated was released %d times", name, n)
		}
	}
	if h.t.Failed() {
		h.t.Log(strings.Join(h.log, "\n"))
	}
}
