package server

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// A start does not wait for a disk that has no room for writes.
func TestAStartDoesNotWaitForRoom(t *testing.T) {
	ready := make(chan struct{})
	full := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer full.Close()
	client := http.Client{Transport: starting{http.DefaultTransport, ready}}
	for _, want := range []string{"", "1"} {
		response, err := client.Get(full.URL)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if got := response.Header.Get("Retry-After"); got != want {
			t.Errorf("the server's own client is asked to try again after %q, want %q", got, want)
		}
		if want == "" {
			close(ready)
		}
	}
}

func TestQuestionsForHealthWaitUntilTheServerIsReady(t *testing.T) {
	const start, patience = 300 * time.Millisecond, time.Second
	for _, c := range []struct {
		claim, path string
		ready       bool
		want        time.Duration
	}{
		{"until the start is over", "/healthz", true, start},
		{"until the start is over", "/readyz", true, start},
		{"until the start is over", "/livez", true, start},
		{"for a while at most", "/readyz", false, patience},
		{"other requests do not wait", "/version", true, 0},
		{"single checks do not wait", "/readyz/started", true, 0},
	} {
		t.Run(c.claim+": "+c.path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ready := make(chan struct{})
				if c.ready {
					time.AfterFunc(start, func() { close(ready) })
				}
				answered := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
				began := time.Now()
				patientHealth(ready, patience)(answered).ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "GET", c.path, nil))
				if took := time.Since(began); took != c.want {
					t.Errorf("it waited for %s, want %s", took, c.want)
				}
				time.Sleep(start)
			})
		})
	}
}
