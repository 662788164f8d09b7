package call

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

func TestSlotsGoToTheEarliestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slots{name: "hook:443", max: 1}
		deadline := func(d time.Duration) (context.Context, time.Time) {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			t.Cleanup(cancel)
			at, _ := ctx.Deadline()
			return ctx, at
		}
		ctx, at := deadline(time.Minute)
		if waited, err := s.take(ctx, time.Now(), at, 1); waited || err != nil {
			t.Fatal(waited, err)
		}
		results := make(chan string, 5)
		for _, seconds := range []int{30, 10, 20, 5, 1} {
			go func() {
				ctx, at := deadline(time.Duration(seconds) * time.Second)
				waited, err := s.take(ctx, time.Now(), at, 1)
				if !waited {
					t.Error("it did not wait")
				}
				if err != nil {
					results <- fmt.Sprintf("%d: %v", seconds, err)
					return
				}
				results <- fmt.Sprint(seconds)
			}()
			synctest.Wait()
		}
		if taken, waiting, _ := s.state(); taken != 1 || waiting != 5 {
			t.Errorf("%d have a place, %d wait", taken, waiting)
		}
		time.Sleep(2 * time.Second)
		for range 4 {
			s.leave()
			synctest.Wait()
		}
		close(results)
		var got []string
		for r := range results {
			got = append(got, r)
		}
		want := []string{"1: 1 calls to hook:443 are running and 4 are waiting; none finished within the 1s that this call could wait", "5", "10", "20", "30"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		s.leave()
		if taken, waiting, _ := s.state(); taken != 0 || waiting != 0 {
			t.Errorf("%d have a place, %d wait", taken, waiting)
		}
	})
}

func TestSlotsForesee(t *testing.T) {
	tests := []struct {
		name   string
		usual  time.Duration
		since  time.Duration // ago: the last call to begin or end
		queued int           // with earlier deadlines, for 10 places
		left   time.Duration
		ok     bool
	}{
		{"nothing is known", 0, 0, 100, time.Second, true},
		{"quick calls, a long queue", 10 * time.Millisecond, time.Millisecond, 100, time.Second, true},
		{"quick calls, a queue that is too long", 10 * time.Millisecond, time.Millisecond, 1000, time.Second, false},
		{"calls take as long as there is time", time.Second, time.Millisecond, 0, time.Second, false},
		{"calls took little, and now they hang", 10 * time.Millisecond, 2 * time.Second, 0, 2 * time.Second, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := &slots{name: "hook:443", max: 10}
			now := time.Now()
			s.mu.taken, s.mu.usual, s.mu.since = 10, tt.usual, now.Add(-tt.since)
			for range tt.queued {
				s.mu.queue = append(s.mu.queue, &waiter{deadline: now})
			}
			// Waiting calls with later deadlines do not matter.
			s.mu.queue = append(s.mu.queue, &waiter{deadline: now.Add(time.Hour)})
			err := s.foresee(now, now.Add(tt.left))
			if (err == nil) != tt.ok {
				t.Errorf("got %v", err)
			}
			if err != nil && !strings.HasPrefix(err.Error(), fmt.Sprintf("10 calls to hook:443 are running and %d are waiting; recent calls took ", tt.queued+1)) {
				t.Errorf("got %q", err)
			}
		})
	}
}

// A burst of calls after a pause does not show the duration of calls: calls without a slot wait for
// one.
func TestABurstAfterAPauseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slots{name: "hook:443", max: 2}
		take := func() (waited bool, err error) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			at, _ := ctx.Deadline()
			return s.take(ctx, time.Now(), at, 1)
		}
		for range 3 {
			if waited, err := take(); waited || err != nil {
				t.Fatal(waited, err)
			}
			time.Sleep(5 * time.Millisecond)
			s.give(time.Now(), 5*time.Millisecond)
			time.Sleep(time.Hour)
		}
		for range s.max {
			if waited, err := take(); waited || err != nil {
				t.Fatal(waited, err)
			}
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			if waited, err := take(); !waited || err != nil {
				t.Errorf("waited: %v, error: %v", waited, err)
			}
		}()
		time.Sleep(5 * time.Millisecond)
		s.give(time.Now(), 5*time.Millisecond)
		<-done
	})
}

// TestCallsUnderWayAreBounded makes more concurrent calls of a slow webhook than allowed: all are
// answered, never more than the bound at once (S7.17).
func TestCallsUnderWayAreBounded(t *testing.T) {
	ca := newAuthority(t, "ca")
	var now, most atomic.Int32
	s := serve(t, ca.serving(t, "127.0.0.1"), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := now.Add(1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		<-time.After(5 * time.Millisecond)
		now.Add(-1)
		allow(w, r)
	}), nil)
	c := newCaller(t, Options{MaxInFlight: 3})
	h := urlHook(s.URL, ca.bundle)
	var calls sync.WaitGroup
	for range 30 {
		calls.Go(func() {
			if _, err := c.Call(t.Context(), invocation(h)); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	if got := most.Load(); got != 3 {
		t.Errorf("%d calls at once, want 3", got)
	}
	if s := c.Targets()[0]; s.InFlight != 0 || s.Waiting != 0 || s.Latency < 5*time.Millisecond {
		t.Errorf("%+v", s)
	}
}

// TestACallWithoutAPlaceFails fills all slots with calls that hang (S7.17).
func TestACallWithoutAPlaceFails(t *testing.T) {
	bubble(t, func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}, func(t *testing.T, c *Caller, h *registration.Entry) {
		c = newCaller(t, Options{MaxInFlight: 2, Dial: c.options.Dial})
		ctx, cancel := context.WithCancel(t.Context())
		var hanging sync.WaitGroup
		for range 2 {
			hanging.Go(func() {
				if _, err := c.Call(ctx, invocation(h)); err == nil || !err.ClientGone {
					t.Errorf("got %v", err)
				}
			})
		}
		synctest.Wait()
		h.Timeout = 50 * time.Millisecond
		_, err := c.Call(t.Context(), invocation(h))
		if err == nil || err.Class != Busy || err.Code != 503 || err.TimedOut || err.Dial || !errors.As(err, new(*busyError)) {
			t.Fatalf("got %#v", err)
		}
		if missing := contains(err.Status().Error(), `failed calling webhook "check.shop.example.com": not called: 2 calls to `,
			"none finished within the 50ms that this call could wait", "failurePolicy is Fail", "add replicas"); missing != "" {
			t.Errorf("%q lacks %q", err.Status(), missing)
		}
		if after := err.Status().ErrStatus.Details.RetryAfterSeconds; after != 1 {
			t.Errorf("the client is told to come back after %d s", after)
		}
		gone, leave := context.WithCancel(t.Context())
		leave()
		h.Timeout = time.Minute
		if _, err := c.Call(gone, invocation(h)); err == nil || !err.ClientGone {
			t.Errorf("S7.10: got %v", err)
		}
		cancel()
		hanging.Wait()
		if s := c.Targets()[0]; s.InFlight != 0 || s.Waiting != 0 {
			t.Errorf("%+v", s)
		}
		c.Close()
	})
}

// TestWhatWaitsIsBoundedInBytes fills the slots of two webhook servers with calls that hang
// (S7.17): calls that wait for either count, and a call that need not wait is not refused.
func TestWhatWaitsIsBoundedInBytes(t *testing.T) {
	bubble(t, func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}, func(t *testing.T, c *Caller, h *registration.Entry) {
		c = newCaller(t, Options{MaxInFlight: 1, Dial: c.options.Dial})
		another, action := *h, *h.Webhook
		another.Webhook = &action
		another.ClientConfig.CABundle = append([]byte("\n"), h.ClientConfig.CABundle...)
		inv := invocation(h)
		size := inv.Body.Len()
		c.waiting.max = 3*size + size/2
		ctx, cancel := context.WithCancel(t.Context())
		var hanging sync.WaitGroup
		hang := func(h *registration.Entry) {
			hanging.Go(func() {
				if _, err := c.Call(ctx, invocation(h)); err == nil || !err.ClientGone {
					t.Errorf("got %v", err)
				}
			})
			synctest.Wait()
		}
		for range 4 {
			hang(h)
		}
		// It has a slot of another server.
		hang(&another)
		if got := c.waiting.held.Load(); got != 3*size {
			t.Errorf("%d bytes wait, want %d", got, 3*size)
		}
		for _, h := range []*registration.Entry{h, &another} {
			_, err := c.Call(t.Context(), invocation(h))
			if err == nil || err.Class != Busy || err.Code != 503 {
				t.Fatalf("got %#v", err)
			}
			if missing := contains(err.Status().Error(), `failed calling webhook "check.shop.example.com": not called: 1 calls to `,
				fmt.Sprintf("; this review of %d bytes would bring the reviews that wait for slow webhooks above ", size), "failurePolicy is Fail"); missing != "" {
				t.Errorf("%q lacks %q", err.Status(), missing)
			}
			if after := err.Status().ErrStatus.Details.RetryAfterSeconds; after != 1 {
				t.Errorf("the client is told to come back after %d s", after)
			}
		}
		cancel()
		hanging.Wait()
		if got := c.waiting.held.Load(); got != 0 {
			t.Errorf("%d bytes wait still", got)
		}
		c.Close()
	})
}
