package server

import (
	"context"
	"errors"
	"testing"

	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/gatehouse-dev/gatehouse/internal/server/api/catalog"
)

// What makes services waits until their addresses are checked, and no longer than the start.
func TestServicesWaitForTheCheckOfAddresses(t *testing.T) {
	run := func(end error) genericapiserver.PostStartHookFunc {
		return func(genericapiserver.PostStartHookContext) error { return end }
	}
	ended, end := context.WithCancelCause(t.Context())
	end(errors.New("the start ended"))
	for _, c := range []struct {
		name  string
		hooks []catalog.Hook
		// steps is how many of the hooks run before.
		steps int
		want  string
	}{
		{"no such hook", []catalog.Hook{{Name: "other", Run: run(nil)}}, 0, ""},
		{"not checked yet", []catalog.Hook{{Name: "other", Run: run(nil)}, {Name: bootAddresses, Run: run(nil)}}, 1, "the start ended"},
		{"checked", []catalog.Hook{{Name: "other", Run: run(nil)}, {Name: bootAddresses, Run: run(nil)}}, 2, ""},
		{"the check failed", []catalog.Hook{{Name: bootAddresses, Run: run(errors.New("no"))}}, 1, "the start ended"},
	} {
		t.Run(c.name, func(t *testing.T) {
			steps, checked := hookSteps(c.hooks, &loopback{})
			for _, s := range steps[:c.steps] {
				_ = s.do(t.Context())
			}
			// The wait of a context that has ended is over at once, but a closed channel may win or lose
			// against it; where the check is done, the context lives.
			ctx := ended
			if c.want == "" {
				ctx = t.Context()
			}
			got := ""
			if err := checked(ctx); err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
