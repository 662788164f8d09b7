package replicas

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// TestRollingUpgrade replaces the program of three servers, one after the other, under load: first the latest
// release by this program, then back. While both run on one etcd, no acknowledged write is lost, and
// registrations, policies and params are active as in TestHistories: a server of either version applies the
// registrations acknowledged by the other version (S11.8, S11.10, S15.13, S20.7, S20.8).
func TestRollingUpgrade(t *testing.T) {
	speed.Long(t)
	t.Parallel()
	released := harness.Previous(t)
	judged, scheduling := extent()
	for _, mode := range []string{"bounded", "strict"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			f := newFleetOf(t, 3, 3, released, "--admission-consistency", mode)
			f.tellers()
			for _, change := range []struct{ name, program string }{{"to this program", ""}, {"back to the latest release", released}} {
				t.Run(change.name, func(t *testing.T) {
					h := newHistory()
					f.record(t, h, judged, f.replacing(t, h, func(s *harness.Server) { s.Become(t, change.program) }))
					bound := time.Duration(0)
					if mode == "bounded" {
						bound = interval + f.slowestRead() + scheduling
					}
					h.report(t, bound, 0)
					// A server that is being replaced refuses connections, and rejects requests during its
					// shutdown. The latest release did not finish every write in strict mode.
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

// TestRollingUpgradeOfJoinedServers does the same with joined servers (S31.9): from the latest release, or,
// if that release cannot join, from the program named by GATEHOUSE_OLDER, or else from an older release that
// this program emulates.
func TestRollingUpgradeOfJoinedServers(t *testing.T) {
	speed.Long(t)
	t.Parallel()
	older, emulated := os.Getenv("GATEHOUSE_OLDER"), []string(nil)
	if older == "" {
		older = harness.Previous(t)
	}
	if help, err := exec.Command(older, "serve", "--help").CombinedOutput(); err != nil || !bytes.Contains(help, []byte("--join-token-file")) {
		older, emulated = "", []string{"--emulated-version", "1.36"}
	}
	judged, scheduling := extent()
	for _, mode := range []string{"bounded", "strict"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			flags := []string{"--admission-consistency", mode}
			f := newJoinedFleetOn(t, t.TempDir(), older, append(flags, emulated...)...)
			f.tellers()
			for _, change := range []struct {
				name, program string
				flags         []string
			}{{"to this program", "", nil}, {"back", older, emulated}} {
				t.Run(change.name, func(t *testing.T) {
					h := newHistory()
					f.record(t, h, judged, f.replacing(t, h, func(s *harness.Server) {
						s.Flags(slices.Concat(flags, change.flags)...)
						s.Become(t, change.program)
					}))
					bound := time.Duration(0)
					if mode == "bounded" {
						bound = interval + f.slowestRead() + scheduling
					}
					h.report(t, bound, 0)
					// A server that is being replaced refuses connections, and rejects requests during its
					// shutdown.
					delete(h.refused, "nothing")
					delete(h.refused, "503 ServiceUnavailable")
					for answer, n := range h.refused {
						t.Errorf("%d writes were answered %s", n, answer)
					}
					f.keeps(t, h)
				})
			}
		})
	}
}

// replacing replaces the servers one after the other. It continues when the replaced server admits requests,
// and when servers of both versions have applied a registration.
func (f *fleet) replacing(t *testing.T, h *history, replace func(*harness.Server)) func(context.Context) {
	return func(ctx context.Context) {
		for i, s := range f.servers {
			s.Stop(t)
			replace(s)
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

// keeps fails the test unless every server has all acknowledged objects.
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
