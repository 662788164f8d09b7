package replicas

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// TestRollingUpgrade replaces the program of one of three servers after the other under load: that of
// the latest release by this one, and then back. While both run on one etcd, no acknowledged write is
// lost, and registrations, policies and params are in force as in TestHistories: what a server of
// one version acknowledged binds those of the other one (S11.8, S11.10, S15.13, S20.7, S20.8).
func TestRollingUpgrade(t *testing.T) {
	t.Parallel()
	released := harness.Previous(t)
	judged, scheduling := extent()
	for _, mode := range []string{"bounded", "strict"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			f := newFleetOf(t, released, "--admission-consistency", mode)
			f.tellers()
			for _, change := range []struct{ name, program string }{{"to this program", ""}, {"back to the latest release", released}} {
				t.Run(change.name, func(t *testing.T) {
					h := newHistory()
					f.record(t, h, judged, f.replacing(t, h, change.program))
					bound := time.Duration(0)
					if mode == "bounded" {
						bound = interval + f.slowestRead() + scheduling
					}
					h.report(t, bound, 0)
					// A server that is being replaced takes no connection, and refuses what comes at its
					// end. The latest release did not finish every write in strict mode.
					delete(h.refused, "nothing")
					delete(h.refused, "503 ServiceUnavailable")
					if change.program == "" {
						delete(h.refused, "500 LoadingConfiguration")
					}
					for answer, n := range h.refused {
						t.Errorf("%d writes were answered %s", n, answer)
					}
					f.keeps(t, h)
				})
			}
		})
	}
}

// replacing gives the servers another program, one after the other. The next one is replaced when the one
// before judges, and when those of both versions find what is registered in force.
func (f *fleet) replacing(t *testing.T, h *history, program string) func(context.Context) {
	return func(ctx context.Context) {
		for i, s := range f.servers {
			s.Stop(t)
			s.Become(t, program)
			goal := h.count() + 50
			for h.count() < goal && ctx.Err() == nil {
				pause(ctx, 50*time.Millisecond)
			}
			for _, of := range f.servers {
				if r := harness.Run(t, "wait-in-force", "validatingadmissionpolicies/history", "--kubeconfig", of.Kubeconfig); r.Code != 0 {
					t.Errorf("after server %d was replaced: wait-in-force: %s", i, r.Err)
				}
			}
		}
	}
}

// keeps fails the test unless every server has what was acknowledged.
func (f *fleet) keeps(t *testing.T, h *history) {
	t.Helper()
	created := 0
	for i := range f.servers {
		has := map[string]bool{}
		for _, item := range field(t, f.must(http.StatusOK, i, "GET", configMaps, nil), "items").([]any) {
			has[harness.At(item, "metadata", "name").(string)] = true
		}
		created = 0
		for _, j := range h.judgements {
			if j.created == "" {
				continue
			}
			created++
			if !has[j.created] {
				t.Errorf("server %d has not %s, which was acknowledged", i, j.created)
			}
		}
	}
	t.Logf("%d creates were acknowledged, and every server has their objects", created)
}
