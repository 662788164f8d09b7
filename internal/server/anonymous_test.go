package server

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/test/boundstest"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// S27.10: every endpoint outside of the API, including the endpoints of k8s.io/apiserver, reads a bounded
// body in a bounded time, for an unknown client and for the server itself, and has a response of a bounded
// size.
func TestEveryEndpointOutsideOfTheAPIIsBounded(t *testing.T) {
	speed.Server(t)
	s, err := New(Options{DataDir: t.TempDir(), Console: true, LatestLog: func() []byte { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended, ready := make(chan error, 1), make(chan struct{})
	go func() { ended <- s.Run(ctx, func(Address) { close(ready) }) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	select {
	case <-ready:
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
	}
	a := s.assembly.Load()
	paths := []string{"/console/", "/console/view/explain", "/no/such/endpoint"}
	paths = slices.DeleteFunc(append(paths, boundstest.Endpoints(a.generic.Handler)...), inAPI)
	for _, known := range []string{"/", "/debug/flags/v", "/debug/pprof/profile", "/healthz", "/metrics", "/openapi/v2", "/openid/v1/jwks", "/version"} {
		if !slices.Contains(paths, known) {
			t.Errorf("%s is not among the endpoints that were found: %v", known, paths)
		}
	}
	boundstest.Check(t, a.generic.Handler, paths, []string{a.loopback.config.BearerToken}, func(req *http.Request) (time.Duration, int64) {
		l := outsideLimit(req)
		return l.Time, l.Body
	})
}
