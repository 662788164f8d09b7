package initialization

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// Thousands of creators wait on one watch. Each costs less than 20 KiB, its
// object in the watch cache and its goroutine included, without the request around
// it.
func TestWaitingIsCheap(t *testing.T) {
	const limit = 20
	creators := speed.Of(1500, 5000)
	e := patient(t)
	memory := func() float64 {
		var m runtime.MemStats
		for range 3 {
			runtime.GC()
		}
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc + m.StackInuse)
	}
	e.create(object("first"), nil)
	before := memory()
	creations := make([]Creation, creators)
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	var waiting, storing sync.WaitGroup
	for worker := range 8 {
		storing.Go(func() {
			for i := worker; i < creators; i += 8 {
				out := e.create(object(fmt.Sprint("o", i), "a.example.com"), &creations[i])
				waiting.Go(func() { _, _ = creations[i].Wait(ctx, out) })
			}
		})
	}
	storing.Wait()
	each := (memory() - before) / float64(creators) / 1024
	t.Logf("%d creators wait, %.1f KiB each", creators, each)
	if each >= limit {
		t.Errorf("a waiting creator costs %.1f KiB", each)
	}
	// Storage ends a watch that is too slow, and the tracker opens another, so the test counts open watches.
	e.await("one open watch", func() bool { return e.raw.openWatches() == 1 })
	cancel()
	waiting.Wait()
}
