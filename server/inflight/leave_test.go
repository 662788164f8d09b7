package inflight

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestLeave(t *testing.T) {
	// post sends a POST through a doorway to a handler.
	post := func(l *Limiter, handler http.HandlerFunc) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		l.Doorway(handler).ServeHTTP(w, httptest.NewRequest("POST", "/", nil))
		if gone := l.gone.Load(); gone != 0 {
			t.Errorf("%d are still gone", gone)
		}
		return w
	}
	says := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write([]byte(text))
		}
	}
	t.Run("the answer comes when the handlers have returned", func(t *testing.T) {
		l := New(Options{Yielded: 1})
		returned := false
		w := post(l, func(_ http.ResponseWriter, req *http.Request) {
			defer func() { returned = true }()
			left := Leave(req.Context(), func(w http.ResponseWriter, req *http.Request) {
				if gone := l.gone.Load(); gone != 1 || !returned {
					t.Errorf("%d are gone, the handler has returned: %v", gone, returned)
				}
				if Leave(req.Context(), says("never")) {
					t.Error("it left from outside")
				}
				says("later")(w, req)
			})
			if !left || Leave(req.Context(), says("twice")) {
				t.Errorf("left: %v, and perhaps twice", left)
			}
		})
		if w.Code != http.StatusCreated || w.Body.String() != "later" {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
	t.Run("who does not leave answers", func(t *testing.T) {
		if w := post(New(Options{Yielded: 1}), says("now")); w.Code != http.StatusCreated || w.Body.String() != "now" {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
	t.Run("only so many leave", func(t *testing.T) {
		l := New(Options{Yielded: 1})
		post(l, func(_ http.ResponseWriter, req *http.Request) {
			Leave(req.Context(), func(http.ResponseWriter, *http.Request) {
				l.Doorway(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
					if Leave(req.Context(), says("never")) {
						t.Error("a second one left")
					}
				})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/", nil))
			})
		})
	})
	t.Run("there is no leaving without a doorway, and for reads", func(t *testing.T) {
		l := New(Options{Yielded: 1})
		stays := http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
			if Leave(req.Context(), says("never")) {
				t.Errorf("a %s left", req.Method)
			}
		})
		stays.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/", nil))
		l.Doorway(stays).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	})
	t.Run("the answer of a handler that was faster stands", func(t *testing.T) {
		called := false
		w := post(New(Options{Yielded: 1}), func(w http.ResponseWriter, req *http.Request) {
			Leave(req.Context(), func(w http.ResponseWriter, req *http.Request) {
				called = true
				w.Header().Set("Late", "yes")
				says("late")(w, req)
			})
			w.WriteHeader(http.StatusGatewayTimeout)
		})
		if w.Code != http.StatusGatewayTimeout || w.Body.Len() != 0 || w.Header().Get("Late") != "" || !called {
			t.Errorf("%d %s %v, called: %v", w.Code, w.Body, w.Header(), called)
		}
	})
	t.Run("a panic goes on to the server", func(t *testing.T) {
		l := New(Options{Yielded: 1})
		defer func() {
			if got := recover(); got != http.ErrAbortHandler || l.gone.Load() != 0 {
				t.Errorf("recovered %v, %d are gone", got, l.gone.Load())
			}
		}()
		l.Doorway(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
			Leave(req.Context(), says("never"))
			panic(http.ErrAbortHandler)
		})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/", nil))
		t.Error("there was no panic")
	})
}
