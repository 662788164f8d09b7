package inflight

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"
)

func object(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// enter makes an update wait for its turn, and sends the turn to the channel.
func enter(t *testing.T, l *Lines, ctx context.Context, key string) <-chan *Update {
	turn := make(chan *Update, 1)
	go func() {
		u, err := l.Enter(ctx, key)
		if err != nil {
			t.Errorf("%s: %v", key, err)
		}
		turn <- u
	}()
	synctest.Wait()
	return turn
}

// S27.8: updates of one object run in the order in which they began, and each gets the object that
// the previous update has stored. Updates of other objects do not wait.
func TestUpdatesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &Lines{}
		u := <-enter(t, l, t.Context(), "a")
		other := <-enter(t, l, t.Context(), "b")
		var turns []<-chan *Update
		for range 3 {
			turns = append(turns, enter(t, l, t.Context(), "a"))
		}
		for i, turn := range turns {
			stored := object(fmt.Sprint("number ", i))
			u.Leave(stored)
			// The request continues with the object that it has stored.
			stored.Labels = map[string]string{"changed": "later"}
			u.End()
			u = <-turn
			if last, ok := u.Last().(*corev1.ConfigMap); !ok || last.Name != stored.Name || last.Labels != nil {
				t.Errorf("number %d begins with %v, want %s", i+1, u.Last(), stored.Name)
			}
			for later, turn := range turns[i+1:] {
				if len(turn) > 0 {
					t.Errorf("the turn of number %d comes with that of number %d", i+2+later, i+1)
				}
			}
		}
		u.End()
		other.End()
		if len(l.lines) != 0 {
			t.Errorf("lines %v are left", l.lines)
		}
		if again := <-enter(t, l, t.Context(), "a"); again.Last() != nil {
			t.Errorf("an update that did not wait begins with %v", again.Last())
		}
	})
}

// S27.8: the hundred-and-first request that waits for the same object gets 429, and may retry.
// Requests that change an object indirectly wait without such a bound.
func TestLinesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		by := func(name string) context.Context {
			ctx := request.WithRequestInfo(t.Context(), &request.RequestInfo{Verb: "patch", IsResourceRequest: true, Name: "one"})
			return request.WithUser(ctx, &user.DefaultInfo{Name: name, Groups: []string{user.SystemPrivilegedGroup}})
		}
		const key = "/configmaps/default/one"
		l := &Lines{}
		u := <-enter(t, l, by("u"), key)
		var turns []<-chan *Update
		for range maxLine {
			turns = append(turns, enter(t, l, by("u"), key))
		}
		_, err := l.Enter(by("u"), key)
		if after, ok := apierrors.SuggestsClientDelay(err); !apierrors.IsTooManyRequests(err) || !ok || after != 1 {
			t.Errorf("one more: %v", err)
		}
		(<-enter(t, l, by("u"), "/configmaps/default/other")).End()
		turns = append(turns, enter(t, l, t.Context(), key), enter(t, l, by(user.APIServerUser), key))
		u.End()
		for _, turn := range turns {
			(<-turn).End()
		}
		if len(l.lines) != 0 {
			t.Errorf("lines %v are left", l.lines)
		}
	})
}

// S27.8: a request that waits in a line has no place, and takes a place again for the turn.
func TestUpdatesWaitWithoutPlaces(t *testing.T) {
	for _, groups := range [][]string{nil, {user.SystemPrivilegedGroup}} {
		synctest.Test(t, func(t *testing.T) {
			lines := &Lines{}
			l := New(Options{Reads: 10, Writes: 5, Yielded: 100, Serializer: scheme.Codecs, LongRunning: func(*http.Request, *request.RequestInfo) bool { return false }})
			places := &l.writes
			if groups != nil {
				places = &l.masterWrites
			}
			next := make(chan struct{})
			handler := l.Limit(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				u, err := lines.Enter(req.Context(), "/configmaps/default/one")
				if err != nil {
					t.Error(err)
					return
				}
				defer u.End()
				<-next
			}))
			const updates = 20
			var group sync.WaitGroup
			for range updates {
				group.Go(func() {
					info := &request.RequestInfo{Verb: "update", IsResourceRequest: true, Name: "one"}
					sendAs(t.Context(), handler, info, &user.DefaultInfo{Name: "u", Groups: groups})
				})
				synctest.Wait()
			}
			for range updates {
				synctest.Wait()
				if taken, waiting := places.count(); taken != 1 || waiting != 0 {
					t.Errorf("%d updates have a place and %d wait for one, want 1 and 0", taken, waiting)
				}
				next <- struct{}{}
			}
			group.Wait()
			l.checkEmpty(t)
		})
	}
}

// S27.8: a request that waits for others lets the next request change its object. Otherwise a
// webhook that writes the object that it is called for would wait for itself.
func TestTurnsEndWhenRequestsWait(t *testing.T) {
	waits := map[string]func(context.Context){
		"for a webhook":     func(ctx context.Context) { StepAside(ctx)() },
		"for good":          Yield,
		"for a cache":       func(ctx context.Context) { Aside(ctx, func() {}) },
		"for two at a time": func(ctx context.Context) { defer StepAside(ctx)(); StepAside(ctx)() },
	}
	masters := []string{user.SystemPrivilegedGroup}
	for who, from := range map[string]struct {
		info request.RequestInfo
		user user.DefaultInfo
	}{
		"a user":                           {request.RequestInfo{Verb: "patch", IsResourceRequest: true}, user.DefaultInfo{Name: "u"}},
		"an administrator":                 {request.RequestInfo{Verb: "patch", IsResourceRequest: true}, user.DefaultInfo{Name: "u", Groups: masters}},
		"an administrator, a registration": {request.RequestInfo{Verb: "patch", IsResourceRequest: true, APIGroup: "admissionregistration.k8s.io"}, user.DefaultInfo{Name: "u", Groups: masters}},
		"the server itself":                {request.RequestInfo{Verb: "patch", IsResourceRequest: true}, user.DefaultInfo{Name: user.APIServerUser, Groups: masters}},
	} {
		for what, wait := range waits {
			t.Run(who+" waits "+what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					lines := &Lines{}
					l := New(Options{Reads: 1, Writes: 1, Yielded: 1, Serializer: scheme.Codecs, LongRunning: func(*http.Request, *request.RequestInfo) bool { return false }})
					sendAs(t.Context(), l.Limit(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
						outer, err := lines.Enter(req.Context(), "a")
						if err != nil {
							t.Error(err)
							return
						}
						defer outer.End()
						inner, err := lines.Enter(req.Context(), "b")
						if err != nil {
							t.Error(err)
							return
						}
						defer inner.End()
						wait(req.Context())
						for _, key := range []string{"a", "b"} {
							u, err := lines.Enter(t.Context(), key)
							if err != nil || u.granted != nil || u.Last() != nil {
								t.Errorf("an update of %s waited: %v", key, err)
								return
							}
							u.End()
						}
					})), &from.info, &from.user)
					l.checkEmpty(t)
				})
			})
		}
	}
}

// S27.8: an update that cannot wait any longer reports that it has changed nothing, and leaves the
// line. An update that takes too long does not block the line.
func TestWaitsInLinesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &Lines{}
		u := <-enter(t, l, t.Context(), "a")
		late, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := l.Enter(late, "a"); !apierrors.IsTimeout(err) {
			t.Errorf("after the end of its time: %v", err)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := l.Enter(gone, "a"); err != context.Canceled {
			t.Errorf("after the end of its client: %v", err)
		}
		began := time.Now()
		second, third := enter(t, l, t.Context(), "a"), enter(t, l, t.Context(), "a")
		var took []time.Duration
		for _, turn := range []<-chan *Update{second, third} {
			if next := <-turn; next.Last() != nil {
				t.Errorf("an update that was let in begins with %v", next.Last())
			}
			took = append(took, time.Since(began))
		}
		// The first update has been waited for since the late update came.
		if want := []time.Duration{maxHead - time.Second, 2*maxHead - time.Second}; !slices.Equal(took, want) {
			t.Errorf("they were let in after %v, want %v", took, want)
		}
		u.Leave(object("late"))
		u.End()
	})
}
