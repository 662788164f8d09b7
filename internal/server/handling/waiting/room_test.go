package waiting

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/httplog"
	"k8s.io/klog/v2"
)

// says is a handler that answers 201 and a text.
func says(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Said", text)
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte(text))
	}
}

// leaving is the handler of a create whose storage leaves, and which then answers as
// k8s.io/apiserver does to ErrLeft. answer is the later answer.
func leaving(t *testing.T, wait func(), answer http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		if !Serve(func(w http.ResponseWriter, req *http.Request) {
			if !Leave(req.Context()) {
				says("stayed")(w, req)
				return
			}
			if Leave(req.Context()) {
				t.Error("it left twice")
			}
			http.Error(w, ErrLeft.Error(), http.StatusServiceUnavailable)
		}, w, req) {
			return
		}
		Finish(w, req, func(context.Context) { wait() }, func(w http.ResponseWriter, req *http.Request) int {
			answer(w, req)
			return http.StatusCreated
		})
	}
}

// post sends a POST through a doorway to a handler.
func post(t *testing.T, r *Room, handler http.Handler) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	r.Doorway(handler).ServeHTTP(w, httptest.NewRequest("POST", "/", nil))
	if inside := r.inside.Load(); inside != 0 {
		t.Errorf("%d are still inside", inside)
	}
	return w
}

func expect(t *testing.T, w *httptest.ResponseRecorder, code int, body string) {
	t.Helper()
	if w.Code != code || w.Body.String() != body {
		t.Errorf("answered %d %q, want %d %q", w.Code, w.Body, code, body)
	}
}

func TestLeaving(t *testing.T) {
	t.Run("the answer comes when the handlers have returned", func(t *testing.T) {
		r := NewRoom(1)
		returned, waited := false, false
		handler := leaving(t, func() {
			if waited = true; !returned || r.inside.Load() != 1 {
				t.Errorf("handlers returned: %v, inside: %d", returned, r.inside.Load())
			}
		}, says("later"))
		w := post(t, r, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			defer func() { returned = true }()
			w.Header().Set("Kept", "yes")
			handler(w, req)
		}))
		expect(t, w, http.StatusCreated, "later")
		if !waited || w.Header().Get("Kept") != "yes" || w.Header().Get("X-Content-Type-Options") != "" {
			t.Errorf("waited: %v; header %v", waited, w.Header())
		}
	})
	t.Run("who does not leave answers", func(t *testing.T) {
		expect(t, post(t, NewRoom(1), http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if Serve(says("now"), w, req) {
				t.Error("it left")
			}
		})), http.StatusCreated, "now")
	})
	t.Run("who has begun to answer does not leave", func(t *testing.T) {
		expect(t, post(t, NewRoom(1), http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			Serve(func(w http.ResponseWriter, req *http.Request) {
				says("now")(w, req)
				if Leave(req.Context()) {
					t.Error("it left after its answer")
				}
			}, w, req)
		})), http.StatusCreated, "now")
	})
	t.Run("who has begun an answer that a handler keeps back does not leave", func(t *testing.T) {
		post(t, NewRoom(1), http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
			Serve(func(w http.ResponseWriter, req *http.Request) {
				says("now")(w, req)
				if Leave(req.Context()) {
					t.Error("it left after its answer")
				}
			}, httptest.NewRecorder(), req)
		}))
	})
	t.Run("who has left does not leave again, although there is room", func(t *testing.T) {
		expect(t, post(t, NewRoom(2), leaving(t, func() {}, says("later"))), http.StatusCreated, "later")
	})
	for name, answer := range map[string]func(http.ResponseWriter){
		"who is answered from outside, by a code, does not leave": func(w http.ResponseWriter) { w.WriteHeader(http.StatusGatewayTimeout) },
		"who is answered from outside, by a body, does not leave": func(w http.ResponseWriter) { _, _ = w.Write(nil) },
	} {
		t.Run(name, func(t *testing.T) {
			r := NewRoom(1)
			post(t, r, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				answer(w)
				if Serve(func(_ http.ResponseWriter, req *http.Request) {
					if Leave(req.Context()) {
						t.Error("it left after the answer")
					}
				}, w, req) {
					t.Error("it counts as without an answer")
				}
			}))
		})
	}
	t.Run("only so many leave", func(t *testing.T) {
		r := NewRoom(1)
		expect(t, post(t, r, leaving(t, func() {
			w := httptest.NewRecorder()
			r.Doorway(leaving(t, func() { t.Error("a second one left") }, says("never"))).ServeHTTP(w, httptest.NewRequest("POST", "/", nil))
			expect(t, w, http.StatusCreated, "stayed")
		}, says("later"))), http.StatusCreated, "later")
	})
	t.Run("there is no leaving without a doorway, and for reads", func(t *testing.T) {
		r := NewRoom(1)
		stays := leaving(t, func() { t.Error("it left") }, says("never"))
		w := httptest.NewRecorder()
		stays(w, httptest.NewRequest("POST", "/", nil))
		expect(t, w, http.StatusCreated, "stayed")
		w = httptest.NewRecorder()
		r.Doorway(stays).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		expect(t, w, http.StatusCreated, "stayed")
	})
	t.Run("the answer of a handler that was faster stands", func(t *testing.T) {
		called := false
		handler := leaving(t, func() { called = true }, says("late"))
		w := post(t, NewRoom(1), http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			handler(w, req)
			w.WriteHeader(http.StatusGatewayTimeout)
		}))
		expect(t, w, http.StatusGatewayTimeout, "")
		if w.Header().Get("Said") != "" || !called {
			t.Errorf("header %v, called: %v", w.Header(), called)
		}
	})
	t.Run("what is finished after the end is finished all the same", func(t *testing.T) {
		r := NewRoom(1)
		given, called := make(chan struct{}), make(chan struct{})
		w := post(t, r, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			left := make(chan struct{})
			go func() {
				defer close(called)
				if !Serve(func(_ http.ResponseWriter, req *http.Request) { Leave(req.Context()) }, w, req) {
					t.Error("it did not leave")
				}
				close(left)
				<-given
				Finish(w, req, func(context.Context) {}, func(w http.ResponseWriter, req *http.Request) int {
					says("late")(w, req)
					return http.StatusCreated
				})
			}()
			<-left
			w.WriteHeader(http.StatusGatewayTimeout)
		}))
		close(given)
		<-called
		expect(t, w, http.StatusGatewayTimeout, "")
	})
	t.Run("a panic goes on to the server", func(t *testing.T) {
		r := NewRoom(1)
		defer func() {
			if got := recover(); got != http.ErrAbortHandler || r.inside.Load() != 0 {
				t.Errorf("recovered %v, %d are inside", got, r.inside.Load())
			}
		}()
		post(t, r, http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
			Leave(req.Context())
			panic(http.ErrAbortHandler)
		}))
	})
}

// events is an audit log.
type events struct{ stages []string }

func (e *events) ProcessEvents(list ...*auditinternal.Event) bool {
	for _, event := range list {
		e.stages = append(e.stages, fmt.Sprintf("%s %d", event.Stage, event.ResponseStatus.Code))
	}
	return true
}
func (*events) Run(<-chan struct{}) error { return nil }
func (*events) Shutdown()                 {}
func (*events) String() string            { return "events" }

// TestTheAuditLogHasTheAnswerOnly: k8s.io/apiserver reports a request that has left as if the
// request were answered; no other event is kept out of the log.
func TestTheAuditLogHasTheAnswerOnly(t *testing.T) {
	r, log := NewRoom(1), &events{}
	backend := r.AuditBackend(log)
	handler := leaving(t, func() {}, says("later"))
	post(t, r, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		ctx := audit.WithAuditContext(req.Context())
		record := audit.AuditContextFrom(ctx)
		if err := record.Init(audit.RequestAuditConfig{Level: auditinternal.LevelMetadata}, backend); err != nil {
			t.Fatal(err)
		}
		handler(w, req.WithContext(ctx))
		record.ProcessEventStage(ctx, auditinternal.StageResponseComplete)
	}))
	lookalike := *r.unanswered
	backend.ProcessEvents(&auditinternal.Event{Stage: "Lookalike", ResponseStatus: &lookalike})
	if got := strings.Join(log.stages, ", "); got != "ResponseComplete 201, Lookalike 0" {
		t.Errorf("the audit log has %s", got)
	}
}

// TestVerbosityChangesNothing: a request leaves whether it is logged or not. When it is,
// the log has its answer, and no code before.
func TestVerbosityChangesNothing(t *testing.T) {
	flags := flag.NewFlagSet("klog", flag.PanicOnError)
	klog.InitFlags(flags)
	set := func(name, value string) {
		if err := flags.Set(name, value); err != nil {
			t.Fatal(err)
		}
	}
	var log bytes.Buffer
	set("logtostderr", "false")
	klog.SetOutput(&log)
	t.Cleanup(func() {
		set("v", "0")
		set("logtostderr", "true")
	})
	for _, v := range []int{0, 2, 3, 10} {
		t.Run(fmt.Sprint("v=", v), func(t *testing.T) {
			set("v", fmt.Sprint(v))
			log.Reset()
			left := false
			handler := leaving(t, func() { left = true }, says("later"))
			w := post(t, NewRoom(1), httplog.WithLogging(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				handler(w, req.WithContext(request.WithRequestInfo(req.Context(), &request.RequestInfo{Verb: "create"})))
			}), httplog.DefaultStacktracePred))
			expect(t, w, http.StatusCreated, "later")
			klog.Flush()
			if !left {
				t.Error("it did not leave")
			}
			if lines := strings.Count(log.String(), `"HTTP"`); lines != map[bool]int{true: 2}[v >= 3] {
				t.Errorf("%d lines", lines)
			}
			if v >= 3 && (!strings.Contains(log.String(), "left=") || !strings.Contains(log.String(), "resp=201") || strings.Contains(log.String(), "resp=503")) {
				t.Errorf("logged %s", log.String())
			}
		})
	}
}
