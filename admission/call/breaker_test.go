package call

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

func TestJudge(t *testing.T) {
	own, short := 10*time.Second, 100*time.Millisecond
	tests := []struct {
		name                 string
		e                    *Failure
		onConnect, onTimeout outcome
	}{
		{"an answer", nil, reached, reached},
		{"an HTTP error", &Failure{Class: HTTPStatus}, reached, reached},
		{"an answer that is no review", &Failure{Class: Answer}, reached, reached},
		{"a review that breaks the rules", &Failure{Class: Invalid}, reached, reached},
		{"a connection that broke", &Failure{Class: Transport}, reached, reached},
		{"no connection", &Failure{Class: Transport, Dial: true}, failed, failed},
		{"no connection in time", &Failure{Class: Transport, Dial: true, TimedOut: true, Limit: own}, failed, failed},
		{"no connection in the little time the request had left", &Failure{Class: Transport, Dial: true, TimedOut: true, Limit: short, RequestLimited: true}, unknown, unknown},
		{"no connection in its own short time", &Failure{Class: Transport, Dial: true, TimedOut: true, Limit: short}, failed, failed},
		{"no answer in time", &Failure{Class: Transport, TimedOut: true, Limit: own}, reached, failed},
		{"no answer in the little time the request had left", &Failure{Class: Transport, TimedOut: true, Limit: short, RequestLimited: true}, reached, unknown},
		{"the client left", &Failure{Class: Transport, Dial: true, ClientGone: true}, unknown, unknown},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := BreakerConnect.judge(tt.e); got != tt.onConnect {
				t.Errorf("connect: got %d, want %d", got, tt.onConnect)
			}
			if got := BreakerTimeout.judge(tt.e); got != tt.onTimeout {
				t.Errorf("timeout: got %d, want %d", got, tt.onTimeout)
			}
		})
	}
}

// TestBreaker replays calls (S7.16), one word each. A word is the result of the call: ok, fail,
// gone (the client disconnected), or not, if it was not made; or an elapsed time, or @PLACE, the
// server's place from then on.
func TestBreaker(t *testing.T) {
	tests := []struct {
		name  string
		story string
		want  []string // changes
	}{
		{"closed until five calls in a row fail", "fail fail fail fail ok fail fail fail fail fail not", []string{"open 5"}},
		{"what says nothing does not count", "fail fail gone fail fail gone fail not", []string{"open 5"}},
		{"one attempt after a second, and closed by success", "fail fail fail fail fail 999ms not 1ms ok ok", []string{"open 5", "closed"}},
		{"the pause doubles up to ten seconds", "fail fail fail fail fail 1s fail 1s not 1s fail 3s not 1s fail 7s not 1s fail 9s not 1s fail 9s not 1s ok fail", []string{"open 5", "closed"}},
		{"an attempt that says nothing is followed by another", "fail fail fail fail fail 1s gone ok", []string{"open 5", "closed"}},
		{"other endpoints are tried at once", "fail fail fail fail fail not @b fail not @c ok", []string{"open 5", "closed"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var changes []string
				b := &breaker{name: "hook:443", observe: func(c Circuit) {
					if c.Open {
						changes = append(changes, fmt.Sprintf("open %d", c.Failures))
					} else {
						changes = append(changes, "closed")
					}
				}}
				place := []string{"a", "a2"}
				for i, word := range strings.Fields(tt.story) {
					if pause, err := time.ParseDuration(word); err == nil {
						time.Sleep(pause)
						continue
					}
					if strings.HasPrefix(word, "@") {
						place = []string{word[1:]}
						continue
					}
					// The order of the endpoints does not matter.
					place = slices.Clone(place)
					slices.Reverse(place)
					probe, err := b.allow(time.Now(), place)
					if made := err == nil; made != (word != "not") {
						t.Fatalf("word %d, %s: %v", i, word, err)
					}
					if probe {
						if _, err := b.allow(time.Now(), place); err == nil {
							t.Fatalf("word %d, %s: a second attempt at the same time", i, word)
						}
					}
					o := map[string]outcome{"ok": reached, "fail": failed, "gone": unknown}[word]
					if err == nil {
						b.record(time.Now(), o, probe, place, &Failed(urlHook("", nil), Transport, errors.New("no route")).Failure)
					}
				}
				if diff := cmp.Diff(tt.want, changes); diff != "" {
					t.Errorf("(-want +got)\n%s", diff)
				}
			})
		})
	}
}

// TestCircuit calls servers that fail in one way (S7.16).
func TestCircuit(t *testing.T) {
	const at = "hook.example.com"
	// If dial is nil, the webhook answers; otherwise there is no connection to it.
	type dial func(ctx context.Context, network, addr string) (net.Conn, error)
	refuses := func(_ context.Context, network, _ string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	silent := func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go io.Copy(io.Discard, server)
		return client, nil
	}
	hangs := func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}
	answers := func(code int) http.HandlerFunc { return respond(code, "text/plain", "no") }
	tests := []struct {
		name    string
		breaker Breaker
		dial    dial
		handler http.HandlerFunc
		opens   bool
		text    string
	}{
		{"refused", BreakerConnect, refuses, nil, true, "connect: connection refused"},
		{"accepts and is silent", BreakerConnect, silent, nil, true, "no connection within 100ms"},
		{"hangs after the request", BreakerConnect, nil, hangs, false, ""},
		{"hangs after the request, time-outs count", BreakerTimeout, nil, hangs, true, "no answer within 100ms"},
		{"HTTP 500 is an answer", BreakerTimeout, nil, answers(500), false, ""},
		{"no review is an answer", BreakerTimeout, nil, answers(200), false, ""},
		{"refused in many words", BreakerConnect, func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("refused" + strings.Repeat("!", 10_000))
		}, nil, true, "refused!!!"},
		{"refused, switched off", BreakerOff, refuses, nil, false, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, tt.handler, func(t *testing.T, c *Caller, h *registration.Entry) {
				if tt.dial == nil {
					tt.dial = c.options.Dial
				}
				c = newCaller(t, Options{Breaker: tt.breaker, Dial: tt.dial})
				h.Timeout = 100 * time.Millisecond
				for i := range breakAfter {
					if _, err := c.Call(t.Context(), invocation(h)); err == nil || err.Class == CircuitOpen {
						t.Fatalf("call %d: %v", i, err)
					}
				}
				_, err := c.Call(t.Context(), invocation(h))
				if err == nil {
					t.Fatal("it answers")
				}
				if opened := err.Class == CircuitOpen; opened != tt.opens {
					t.Fatalf("call %d: %v", breakAfter, err)
				}
				state := c.Targets()[0]
				if of, ok := c.TargetOf(h); !ok || of.Name != state.Name || of.State != state.State || of.Failures != state.Failures {
					t.Errorf("of the hook %+v, %v, of all %+v", of, ok, state)
				}
				if of, ok := c.TargetOf(urlHook(h.ClientConfig.URL, nil)); ok {
					t.Errorf("of a hook with another bundle, never called: %+v", of)
				}
				if !tt.opens {
					if state.State != TargetClosed {
						t.Errorf("%+v", state)
					}
					return
				}
				if missing := contains(err.Error(), "not called: the last 5 calls to "+at+" failed, the first at 2", tt.text, "; the next trial call is in "); missing != "" {
					t.Errorf("%q lacks %q", err, missing)
				}
				status := err.Status().ErrStatus.Message
				if missing := contains(status, `Internal error occurred: failed calling webhook "check.shop.example.com": not called: `, "failurePolicy is Fail: the request was rejected; check that a server answers at that URL"); missing != "" {
					t.Errorf("S7.2: %q lacks %q", status, missing)
				}
				if err.Code != 503 || err.Dial || err.TimedOut {
					t.Errorf("S7.4: %+v", err)
				}
				if state.Name != at || state.State != TargetOpen || state.Failures != breakAfter || state.Since.IsZero() ||
					!strings.Contains(state.LastError, tt.text) || len(state.LastError) > 2*maxText || !state.NextAttempt.After(time.Now()) || state.InFlight != 0 {
					t.Errorf("%+v", state)
				}
			})
		})
	}
}

// TestCircuitIsClosedByAnAnswer lets a server recover on other endpoints: it is called at once
// (S7.16). Then it fails again, and recovers on the same endpoints.
func TestCircuitIsClosedByAnAnswer(t *testing.T) {
	ca := newAuthority(t, "ca")
	up := serve(t, ca.serving(t, "check.shop.svc"), http.HandlerFunc(allow), nil).Listener.Addr().String()
	var mu sync.Mutex
	down, endpoints := refused(t), []string{}
	move := func(to ...string) {
		mu.Lock()
		defer mu.Unlock()
		endpoints = to
	}
	var changes []Circuit
	dialer := net.Dialer{}
	unplugged := true
	c := newCaller(t, Options{
		Observe: func(c Circuit) { changes = append(changes, c) },
		Resolver: ResolverFunc(func(context.Context, string, string, int32) ([]string, error) {
			mu.Lock()
			defer mu.Unlock()
			return endpoints, nil
		}),
		Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if addr == up && unplugged {
				return nil, syscall.EHOSTUNREACH
			}
			return dialer.DialContext(ctx, network, addr)
		},
	})
	h := serviceHook(443, "/", ca.bundle)
	fail := func() {
		for i := range breakAfter + 1 {
			_, err := c.Call(t.Context(), invocation(h))
			if err == nil || (err.Class == CircuitOpen) != (i == breakAfter) {
				t.Fatalf("call %d: %v", i, err)
			}
		}
	}
	move(down)
	fail()
	unplugged = false
	move(down, up)
	mustCall(t, c, h)

	unplugged = true
	c.targets.mu.recent.Front().Value.(*target).transport.CloseIdleConnections()
	fail()
	unplugged = false
	for {
		r, err := c.Call(t.Context(), invocation(h))
		if err == nil && r.Allowed {
			break
		}
		if err.Class != CircuitOpen {
			t.Fatal(err)
		}
		// The next one is due within a second.
		<-time.After(10 * time.Millisecond)
	}
	if s := c.Targets()[0]; s.State != TargetClosed || s.Failures != 0 || s.LastError != "" {
		t.Errorf("%+v", s)
	}
	opened := []bool{}
	for _, change := range changes {
		opened = append(opened, change.Open)
	}
	if diff := cmp.Diff([]bool{true, false, true, false}, opened); diff != "" {
		t.Errorf("changes (-want +got)\n%s", diff)
	}
	if changes[0].Target != "check.shop.svc:443" || !errors.Is(changes[0].Err, syscall.ECONNREFUSED) || changes[0].Since.IsZero() {
		t.Errorf("%+v", changes[0])
	}
}

// TestAServerThatIsForgottenIsNoLongerOpen checks that gauges stay correct.
func TestAServerThatIsForgottenIsNoLongerOpen(t *testing.T) {
	open := 0
	c := newCaller(t, Options{maxTargets: 1, Observe: func(c Circuit) {
		if c.Open {
			open++
		} else {
			open--
		}
	}})
	for range 2 {
		h := urlHook("https://"+refused(t), nil)
		for range breakAfter {
			c.Call(t.Context(), invocation(h))
		}
		if open != 1 {
			t.Errorf("%d circuits are open", open)
		}
	}
	c.Close()
	if open != 0 {
		t.Errorf("%d circuits are open", open)
	}
}
