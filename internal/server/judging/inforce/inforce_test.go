package inforce

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/warning"

	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

// revisionReader is a reader whose reads have a revision, and can fail.
type revisionReader struct {
	mu       sync.Mutex
	revision string
	err      error
}

func (r *revisionReader) set(revision string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.revision, r.err = revision, err
}

func (r *revisionReader) Read(context.Context, snapshot.Version) (snapshot.Registrations, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return snapshot.Registrations{Version: snapshot.Version(r.revision), Revision: r.revision}, r.err
}

// warnings are the warnings of one request.
type warnings struct{ texts []string }

func (w *warnings) AddWarning(_, text string) { w.texts = append(w.texts, text) }

// TestAWriteWaitsUntilItIsInForce proves S11.8 for the server through which a registration is
// written: the response waits until the registration is active, for a bounded time.
func TestAWriteWaitsUntilItIsInForce(t *testing.T) {
	away := errors.New("etcd is away")
	for _, tt := range []struct {
		name string
		// timeout is the timeout of the request, 0 for none; readable is when registrations can be
		// read, over when the server ends.
		timeout, readable, over time.Duration
		waited                  time.Duration
		warning                 string
	}{
		{name: "S11.8 at once, not by the next regular read"},
		{name: "S11.8 when registrations can be read again", readable: 1100 * time.Millisecond, waited: 1250 * time.Millisecond},
		{name: "S11.8 within the request's time", readable: time.Hour, timeout: 2 * time.Second, waited: 1500 * time.Millisecond, warning: "etcd is away"},
		{name: "S11.8 within half of a short request's time", readable: time.Hour, timeout: 100 * time.Millisecond, waited: 50 * time.Millisecond, warning: "etcd is away"},
		{name: "S11.8 S11.10 until nothing is judged any more", readable: time.Hour, timeout: time.Minute, waited: 5 * time.Second, warning: "etcd is away"},
		{name: "S11.8 no longer than the server lasts", readable: time.Hour, over: time.Second, waited: time.Second, warning: "reading registrations has stopped"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reader := &revisionReader{revision: "6"}
				refresher, err := snapshot.NewRefresher(snapshot.Options{Reader: reader})
				if err != nil {
					t.Fatal(err)
				}
				running, stop := context.WithCancel(t.Context())
				var done sync.WaitGroup
				done.Go(func() { _ = refresher.Run(running) })
				defer done.Wait()
				defer stop()
				synctest.Wait()
				if tt.readable > 0 {
					reader.set("6", away)
					time.AfterFunc(tt.readable, func() { reader.set("7", nil) })
				} else {
					reader.set("7", nil)
				}
				if tt.over > 0 {
					time.AfterFunc(tt.over, stop)
				}
				w := &warnings{}
				ctx := warning.WithWarningRecorder(t.Context(), w)
				if tt.timeout > 0 {
					limited, cancel := context.WithTimeout(ctx, tt.timeout)
					defer cancel()
					ctx = limited
				}
				h := Holder{refresher, 5 * time.Second}
				began := time.Now()
				h.await(ctx, 7)
				if waited := time.Since(began); waited != tt.waited {
					t.Errorf("waited %s, want %s", waited, tt.waited)
				}
				if warned := slices.ContainsFunc(w.texts, func(text string) bool {
					return strings.HasPrefix(text, "the change is stored but not yet active: ") && strings.Contains(text, tt.warning)
				}); warned != (tt.warning != "") || len(w.texts) > 1 {
					t.Errorf("warnings %q, want %q", w.texts, tt.warning)
				}
				if tt.warning == "" && refresher.Current().Revision != "7" {
					t.Errorf("answered at revision %s", refresher.Current().Revision)
				}
			})
		})
	}
}

// TestAWriteThatStoresNothingDoesNotWait: a dry run, and a write that is refused or changes
// nothing.
func TestAWriteThatStoresNothingDoesNotWait(t *testing.T) {
	refresher, err := snapshot.NewRefresher(snapshot.Options{Reader: &revisionReader{}})
	if err != nil {
		t.Fatal(err)
	}
	h := Holder{refresher, time.Hour}
	_, done := h.Hold(t.Context())
	done()
}
