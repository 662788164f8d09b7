package inflight

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/filters"
	"k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
	"k8s.io/client-go/kubernetes/scheme"
)

// hall is a priority and fairness with a number of seats, which refuses requests when no seat is
// free.
type hall struct {
	flowcontrol.Interface
	seats, taken, notes, most atomic.Int64
	fault                     any
}

func (h *hall) Handle(_ context.Context, _ flowcontrol.RequestDigest,
	note func(*flowcontrolv1.FlowSchema, *flowcontrolv1.PriorityLevelConfiguration, string),
	estimate func() flowcontrolrequest.WorkEstimate, _ fairqueuing.QueueNoteFn, execute func()) {
	h.notes.Add(1)
	note(&flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{UID: "schema"}}, &flowcontrolv1.PriorityLevelConfiguration{ObjectMeta: metav1.ObjectMeta{UID: "level"}}, "")
	estimate()
	if h.fault != nil {
		panic(h.fault)
	}
	n := h.taken.Add(1)
	defer h.taken.Add(-1)
	if n > h.seats.Load() {
		return
	}
	h.most.Store(max(h.most.Load(), n))
	execute()
}

// fairly returns a handler behind the filter of k8s.io/apiserver with the seats of a hall.
func fairly(h *hall, delegated bool, handler http.HandlerFunc) http.Handler {
	l := New(Options{Reads: 10, Writes: 10, Yielded: 10, Fair: true, Serializer: scheme.Codecs,
		LongRunning: func(*http.Request, *request.RequestInfo) bool { return false }})
	fair := &Fair{Interface: h, Delegated: func(context.Context, *request.RequestInfo) bool { return delegated }}
	one := func(*http.Request, string, string) flowcontrolrequest.WorkEstimate {
		return flowcontrolrequest.WorkEstimate{InitialSeats: 1}
	}
	return Reserve(filters.WithPriorityAndFairness(l.Limit(handler), func(*http.Request, *request.RequestInfo) bool { return false }, fair, one, 0))
}

// S27.4, S27.5: requests give their seats back while they wait, except requests that take no seats.
func TestSeats(t *testing.T) {
	alice := &user.DefaultInfo{Name: "alice"}
	send := func(t *testing.T, h http.Handler, verb string, u user.Info) *httptest.ResponseRecorder {
		return sendAs(t.Context(), h, &request.RequestInfo{Verb: verb, IsResourceRequest: true}, u)
	}
	check := func(t *testing.T, h *hall, want int64) {
		t.Helper()
		if got := h.taken.Load(); got != want {
			t.Errorf("%d seats are taken, want %d", got, want)
		}
	}
	for _, verb := range []string{"create", "update", "patch", "delete", "deletecollection", "list"} {
		t.Run("who waits gives back the seat and takes it again: "+verb, func(t *testing.T) {
			h := &hall{}
			h.seats.Store(1)
			w := send(t, fairly(h, false, func(_ http.ResponseWriter, req *http.Request) {
				check(t, h, 1)
				back := StepAside(req.Context())
				check(t, h, 0)
				back()
				check(t, h, 1)
				Yield(req.Context())
				Yield(req.Context())
				check(t, h, 0)
			}), verb, alice)
			check(t, h, 0)
			if w.Code != http.StatusOK || w.Header().Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID) != "schema" || w.Header().Get(flowcontrolv1.ResponseHeaderMatchedPriorityLevelConfigurationUID) != "level" {
				t.Errorf("%d %v", w.Code, w.Header())
			}
		})
	}
	t.Run("who finds no seat is refused, and goes on without one after a wait", func(t *testing.T) {
		h := &hall{}
		h.seats.Store(1)
		went := false
		var handler http.Handler
		handler = fairly(h, false, func(_ http.ResponseWriter, req *http.Request) {
			if w := send(t, handler, "create", alice); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
				t.Errorf("a second one: %d %v", w.Code, w.Header())
			}
			back := StepAside(req.Context())
			h.seats.Store(0)
			back()
			went = true
		})
		if w := send(t, handler, "create", alice); w.Code != http.StatusOK || !went {
			t.Errorf("%d, went on: %t", w.Code, went)
		}
		check(t, h, 0)
	})
	t.Run("reads of one object, administrators and requests for other servers keep what they have", func(t *testing.T) {
		for _, tt := range []struct {
			verb      string
			user      user.Info
			delegated bool
			notes     int64
		}{
			{"get", alice, false, 1},
			{"create", &user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup}}, false, 1},
			{"create", alice, true, 0},
		} {
			h := &hall{}
			h.seats.Store(1)
			w := send(t, fairly(h, tt.delegated, func(_ http.ResponseWriter, req *http.Request) {
				StepAside(req.Context())()
				check(t, h, tt.notes)
			}), tt.verb, tt.user)
			if got := h.notes.Load(); w.Code != http.StatusOK || got != tt.notes {
				t.Errorf("%s by %s: %d, asked %d times", tt.verb, tt.user.GetName(), w.Code, got)
			}
		}
	})
	t.Run("a panic goes on, and leaves no seat taken", func(t *testing.T) {
		for name, h := range map[string]*hall{"of a handler": {}, "of the library": {fault: "fault"}} {
			h.seats.Store(1)
			func() {
				defer func() {
					if got := recover(); got != "fault" {
						t.Errorf("%s: %v", name, got)
					}
				}()
				send(t, fairly(h, false, func(http.ResponseWriter, *http.Request) { panic("fault") }), "create", alice)
			}()
			check(t, h, 0)
		}
	})
}
