package initialization

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/utils/clock"

	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
)

// patient gives a benchmark's store time, and a real clock.
func patient(b testing.TB) *env {
	e := newEnv(b, func(o *Options) {
		o.Clock, o.Timeout = clock.RealClock{}, time.Hour
		o.maxTimers = 1 << 30
	})
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	b.Cleanup(cancel)
	e.ctx = ctx
	return e
}

// The cost of a write to an object without initializers.
func BenchmarkUpdateOfInitializedObject(b *testing.B) {
	for _, decorated := range []bool{false, true} {
		b.Run(fmt.Sprintf("decorated=%v", decorated), func(b *testing.B) {
			e := patient(b)
			e.create(object("o"), nil)
			s := e.raw.Interface
			if decorated {
				s = e.store
			}
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				n++
				e.write(s, "o", func(c *corev1.ConfigMap) { c.Data = map[string]string{"n": fmt.Sprint(n)} })
			}
		})
	}
}

// The time from an initializer's write to the creator's response, including the write itself.
func BenchmarkWaitAndAct(b *testing.B) {
	for _, other := range []bool{false, true} {
		b.Run(fmt.Sprintf("otherServer=%v", other), func(b *testing.B) {
			e := patient(b)
			s := e.store
			if other {
				s = e.raw.Interface
			}
			n := 0
			b.ReportAllocs()
			for b.Loop() {
				n++
				name := fmt.Sprint("o", n)
				w := e.begin(e.ctx, object(name, "a.example.com"))
				e.write(s, name, setField(nil))
				if _, err := w.result(b); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkWatchOfUninitialized reports the cost per event of a watch of a resource with many uninitialized
// objects.
func BenchmarkWatchOfUninitialized(b *testing.B) {
	for _, objects := range []int{0, 10_000} {
		b.Run(fmt.Sprintf("uninitialized=%d", objects), func(b *testing.B) {
			e := patient(b)
			var group sync.WaitGroup
			for worker := range 16 {
				group.Go(func() {
					for i := worker; i < objects; i += 16 {
						e.create(object(fmt.Sprintf("u%d", i), "a.example.com"), nil)
					}
				})
			}
			group.Wait()
			e.create(object("o", "a.example.com"), nil)
			tracker := e.store.(*store).tracker
			e.await("all are followed", func() bool { return e.followed() == objects+1 })
			out := &corev1.ConfigMap{}
			if err := e.store.Get(e.ctx, keyOf("o"), apistorage.GetOptions{}, out); err != nil {
				b.Fatal(err)
			}
			f, err := initializers.Get(out)
			if err != nil || f == nil {
				b.Fatal(f, err)
			}
			b.ReportAllocs()
			for b.Loop() {
				tracker.observe(out)
			}
		})
	}
}
