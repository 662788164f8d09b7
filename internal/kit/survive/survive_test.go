package survive

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
)

// reset forgets the ended parts.
func reset() {
	known.Lock()
	defer known.Unlock()
	known.ended = nil
}

// S22.28: a panic in a goroutine of a part ends the part, and not the process.
func TestAPanicEndsItsPart(t *testing.T) {
	for name, run := range map[string]func(context.Context){
		"the part itself": func(context.Context) { panic("broken") },
		"a goroutine of the part": func(ctx context.Context) {
			var running sync.WaitGroup
			defer running.Wait()
			running.Go(func() {
				defer utilruntime.HandleCrash()
				panic("broken")
			})
			<-ctx.Done()
		},
		"a worker of a controller that is given no context": func(ctx context.Context) {
			go wait.Until(func() { panic("broken") }, time.Hour, ctx.Done())
			<-ctx.Done()
		},
		"a worker of a queue": func(ctx context.Context) {
			queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
			queue.Add("item")
			Work(ctx, queue, 2, func(context.Context, string) error { panic("broken") })
		},
		"a goroutine of a goroutine": func(ctx context.Context) {
			go func() {
				go wait.UntilWithContext(context.Background(), func(context.Context) { panic("broken") }, time.Hour)
			}()
			<-ctx.Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			defer reset()
			other, stop := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { Run(other, "the other part", func(ctx context.Context) { <-ctx.Done() }) })
			Run(t.Context(), "the part", run)
			err := Check().Check(nil)
			if err == nil || !strings.Contains(err.Error(), "the part has ended by a panic") || strings.Contains(err.Error(), "other") {
				t.Errorf("the check says %v", err)
			}
			if n := Ended(); n != 1 {
				t.Errorf("%d parts have ended, want 1", n)
			}
			if other.Err() != nil {
				t.Error("the other part has ended, too")
			}
			stop()
			running.Wait()
		})
	}
}

// S22.28: a part that ends by repeated panics, such as a watch, is listed once.
func TestAPartIsNamedOnce(t *testing.T) {
	defer reset()
	for range 3 {
		Run(t.Context(), "the part", func(context.Context) { panic("broken") })
	}
	Run(t.Context(), "the other part", func(context.Context) { panic("broken") })
	if err := Check().Check(nil); err == nil || strings.Count(err.Error(), "has ended by a panic") != 2 {
		t.Errorf("the check says %v", err)
	}
	if n := Ended(); n != 2 {
		t.Errorf("%d parts have ended, want 2", n)
	}
}

// S22.28: each of many parts that panic at the same moment is listed.
func TestEachOfManyPanicsIsNamed(t *testing.T) {
	defer reset()
	const parts = 50
	start := make(chan struct{})
	var running sync.WaitGroup
	for i := range parts {
		running.Go(func() {
			Run(t.Context(), fmt.Sprintf("part-%d", i), func(context.Context) {
				<-start
				panic("broken")
			})
		})
	}
	close(start)
	running.Wait()
	err := Check().Check(nil)
	for i := range parts {
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("part-%d has", i)) {
			t.Errorf("the check says %v, without part %d", err, i)
		}
	}
}

// S22.28: a part that was begun continues, and a part that cannot begin returns its error. After a
// panic at its beginning, the server continues without it.
func TestPartsThatAreBegun(t *testing.T) {
	defer reset()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	if err := Begin(ctx, "lasting", func(ctx context.Context) error {
		context.AfterFunc(ctx, func() { close(ended) })
		return nil
	}); err != nil {
		t.Error(err)
	}
	if err := Begin(ctx, "failing", func(context.Context) error { return errors.New("no") }); err == nil {
		t.Error("the error is gone")
	}
	if err := Check().Check(nil); err != nil {
		t.Errorf("the check says %v", err)
	}
	if err := Begin(ctx, "panicking", func(context.Context) error { panic("broken") }); err != nil {
		t.Error(err)
	}
	if err := Check().Check(nil); err == nil {
		t.Error("the check passes")
	}
	select {
	case <-ended:
		t.Error("what was begun has ended")
	default:
	}
	stop()
	<-ended
}

// A panic of any other goroutine ends the process, and a panic that aborts a request passes
// through.
func TestPanicsOutsideOfPartsGoOn(t *testing.T) {
	if os.Getenv("GATEHOUSE_TEST_PANIC") != "" {
		Run(context.Background(), "the part", func(context.Context) {})
		utilruntime.HandleCrash()
		func() {
			defer utilruntime.HandleCrash()
			panic("broken")
		}()
		return
	}
	program := exec.Command(os.Args[0], "-test.run=^TestPanicsOutsideOfPartsGoOn$")
	program.Env = append(os.Environ(), "GATEHOUSE_TEST_PANIC=1")
	if out, err := program.CombinedOutput(); err == nil || !strings.Contains(string(out), "panic: broken") {
		t.Errorf("%v: %s", err, out)
	}
	Run(t.Context(), "the part", func(context.Context) {
		defer func() {
			if p := recover(); p != http.ErrAbortHandler {
				t.Errorf("%v", p)
			}
		}()
		func() {
			defer utilruntime.HandleCrash()
			panic(http.ErrAbortHandler)
		}()
	})
	if err := Check().Check(nil); err != nil {
		t.Errorf("the check says %v", err)
	}
}
