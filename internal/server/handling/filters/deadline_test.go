package filters

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// S3.3: the time kept for answering is too short to change the timeout that a webhook
// gets, which is rounded up to seconds.
func TestTimeToAnswer(t *testing.T) {
	received := time.Now()
	for _, c := range []struct {
		name       string
		time, kept time.Duration
	}{
		{"a second", time.Second, 50 * time.Millisecond},
		{"more", 34 * time.Second, 100 * time.Millisecond},
		{"no limit", 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx := request.WithReceivedTimestamp(t.Context(), received)
			if c.time > 0 {
				limited, cancel := context.WithDeadline(ctx, received.Add(c.time))
				defer cancel()
				ctx = limited
			}
			called := false
			Deadline(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				called = true
				deadline, limited := req.Context().Deadline()
				if limited != (c.time > 0) {
					t.Fatalf("limited: %t", limited)
				}
				if want := received.Add(c.time - c.kept); limited && !deadline.Equal(want) {
					t.Errorf("%s are kept, want %s", received.Add(c.time).Sub(deadline), c.kept)
				}
			})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "POST", "/", nil))
			if !called {
				t.Error("not called")
			}
		})
	}
}
