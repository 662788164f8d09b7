package server

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

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
