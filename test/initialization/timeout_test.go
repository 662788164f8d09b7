package initialization

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gatehouse-dev/gatehouse/initializer"
	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// TestTimeouts runs on a server with an initializer timeout of half a second.
func TestTimeouts(t *testing.T) {
	t.Parallel()
	const timeout = 500 * time.Millisecond
	s := newSite(t, harness.Start(t, "--initializer-timeout", timeout.String(), "--admission-consistency", "strict"))
	for _, test := range []struct {
		name string
		run  func(*site)
	}{
		{"S11.45 Ignore, two in a row", func(s *site) {
			s.register("one", "configmaps", "a,b", "a.example.com", "b.example.com")
			begin := time.Now()
			r := s.Must(http.StatusCreated, "POST", s.path("configmaps"), body("configmaps", "o"))
			if took := time.Since(begin); took < 2*timeout || waits(r.Body) != "-" {
				s.t.Errorf("after %s: %s", took, r.Raw)
			}
		}},
		{"S11.48 the creator does not wait, or is gone", func(s *site) {
			s.register("one", "configmaps", "a", "a.example.com")
			s.Must(http.StatusAccepted, "POST", s.path("configmaps")+including, body("configmaps", "o"))
			s.await("configmaps", "o", "-")
			name, n := "", 0
			harness.Eventually(s.t, "what a creator that is gone has left", func() error {
				n++
				name = fmt.Sprint("p", n)
				ctx, cancel := context.WithTimeout(s.t.Context(), timeout/2)
				defer cancel()
				if code, err := s.Try(ctx, "POST", s.path("configmaps"), body("configmaps", name)); err == nil {
					s.t.Errorf("the creator got %d before it was gone", code)
				}
				// The client may give up before the object is stored.
				if r := s.Do("GET", s.path("configmaps")+"/"+name+including, ""); r.Code != http.StatusOK {
					return fmt.Errorf("%d", r.Code)
				}
				return nil
			})
			s.await("configmaps", name, "-")
		}},
		{"S11.46 S1.27 S1.28 Fail, which only an update can ask for", func(s *site) {
			fail := strings.Replace(configuration("one", "configmaps", "a.example.com"), `"name":"a.example.com"`, `"name":"a.example.com","failurePolicy":"Fail"`, 1)
			s.Refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "POST", s.path("configurations"), fail)
			s.register("one", "configmaps", "a", "a.example.com")
			s.Must(http.StatusOK, "PATCH", s.path("configurations")+"/one", fail, "Content-Type", mergePatch)
			s.inForce("configmaps", "a")
			r := s.Do("POST", s.path("configmaps"), body("configmaps", "o"))
			if status := r.Refusal(http.StatusGatewayTimeout, metav1.StatusReasonTimeout); !strings.Contains(status.Message, `initializer "a.example.com" did not act`) {
				s.t.Errorf("message %q", status.Message)
			}
			s.await("configmaps", "o", "a")
			for user, code := range map[string]int{
				"replicaset-controller": http.StatusAccepted, "job-controller": http.StatusAccepted,
				// This controller creates objects at the request of users, and does not retry.
				"service-account-controller": http.StatusGatewayTimeout,
			} {
				r := s.as("system:serviceaccount:kube-system:"+user, "configmaps").Must(code, "POST", s.path("configmaps"), body("configmaps", user))
				if code == http.StatusAccepted && (waits(r.Body) != "a" || r.Text("metadata", "uid") == "") {
					s.t.Errorf("S11.64: %s", r.Raw)
				}
				s.await("configmaps", user, "a")
			}
			// S11.47: a pending initializer that is no longer configured need not act.
			s.Must(http.StatusOK, "PATCH", s.path("configurations")+"/one", `{"initializers":[]}`, "Content-Type", mergePatch)
			s.inForce("configmaps", "-")
			s.Must(http.StatusCreated, "POST", s.path("configmaps"), merged("configmaps", "p", `{"initializers":{"pending":[{"name":"a.example.com"}]}}`))
		}},
		{"metrics", func(s *site) {
			metrics := string(s.Get("/metrics").Raw)
			for _, want := range []string{
				`gatehouse_initializers_timeouts_total{group="",name="a.example.com",policy="Ignore",resource="configmaps"}`,
				`gatehouse_initializers_timeouts_total{group="",name="a.example.com",policy="Fail",resource="configmaps"} 4`,
				`gatehouse_initializers_waiting_creates{group="",resource="configmaps"} 0`,
			} {
				if !strings.Contains(metrics, want) {
					s.t.Errorf("no %s", want)
				}
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(s.with(t)) })
	}
}

func TestControllers(t *testing.T) {
	t.Parallel()
	s := newSite(t, harness.Sole(t, "--initializer-timeout", "10m", "--admission-consistency", "strict"))
	t.Run("plain initializers act in order, and in one write", func(t *testing.T) {
		s := s.with(t)
		s.register("one", "configmaps", "a,b,c", "a.example.com", "b.example.com", "c.example.com")
		for _, name := range []string{"c", "a", "b"} {
			s.run(initializer.Options{Name: name + ".example.com", Namespace: s.ns, Initialize: mark(name)})
		}
		for i := range 20 {
			r := s.Must(http.StatusCreated, "POST", s.path("configmaps"), body("configmaps", fmt.Sprint("o", i)))
			for n, name := range []string{"a", "b", "c"} {
				if got := r.Text("metadata", "labels", name); got != fmt.Sprint(n) {
					t.Fatalf("initializer %s acted as number %s: %s", name, got, r.Raw)
				}
			}
		}
	})
	t.Run("parallel initializers do not wait for one another, plain ones do", func(t *testing.T) {
		s := s.with(t)
		s.register("one", "configmaps", "p,q,z", "p.example.com parallel", "q.example.com parallel", "z.example.com")
		held := make(chan struct{})
		s.run(initializer.Options{Name: "p.example.com", Namespace: s.ns, Parallel: true,
			Initialize: func(ctx context.Context, obj *unstructured.Unstructured) error {
				select {
				case <-held:
				case <-ctx.Done():
					return ctx.Err()
				}
				return mark("p")(ctx, obj)
			}})
		s.run(initializer.Options{Name: "q.example.com", Namespace: s.ns, Parallel: true, Initialize: mark("q")})
		s.run(initializer.Options{Name: "z.example.com", Namespace: s.ns, Initialize: mark("z")})
		done := s.create(s.HTTP, "configmaps", body("configmaps", "o"))
		s.await("configmaps", "o", "p,z")
		close(held)
		r := s.answer(done)
		if r.Code != http.StatusCreated || r.Text("metadata", "labels", "z") != "2" {
			t.Errorf("%d %s", r.Code, r.Raw)
		}
	})
	t.Run("a failure is the creator's answer", func(t *testing.T) {
		s := s.with(t)
		s.register("one", "configmaps", "a", "a.example.com")
		s.run(initializer.Options{Name: "a.example.com", Namespace: s.ns, Initialize: func(_ context.Context, obj *unstructured.Unstructured) error {
			return initializer.Fail(http.StatusForbidden, metav1.StatusReasonForbidden, "%s must not be", obj.GetName())
		}})
		status := s.Refused(http.StatusForbidden, metav1.StatusReasonForbidden, "POST", s.path("configmaps"), body("configmaps", "o"))
		if status.Message != `initializer "a.example.com" rejected the object: o must not be` {
			t.Errorf("message %q", status.Message)
		}
		s.Must(http.StatusNotFound, "GET", s.path("configmaps")+"/o"+including, "")
	})
	t.Run("errors are tried again", func(t *testing.T) {
		s := s.with(t)
		s.register("one", "configmaps", "a", "a.example.com")
		calls := 0
		s.run(initializer.Options{Name: "a.example.com", Namespace: s.ns, Initialize: func(ctx context.Context, obj *unstructured.Unstructured) error {
			if calls++; calls < 3 {
				return fmt.Errorf("call %d", calls)
			}
			return mark("a")(ctx, obj)
		}})
		s.Must(http.StatusCreated, "POST", s.path("configmaps"), body("configmaps", "o"))
		if calls != 3 {
			t.Errorf("%d calls", calls)
		}
	})
	t.Run("several processes of one initializer act once together", func(t *testing.T) {
		s := s.with(t)
		s.register("one", "configmaps", "a", "a.example.com")
		for range 3 {
			s.run(initializer.Options{Name: "a.example.com", Namespace: s.ns, Initialize: func(_ context.Context, obj *unstructured.Unstructured) error {
				n, _, _ := unstructured.NestedString(obj.Object, "data", "n")
				return unstructured.SetNestedField(obj.Object, n+"x", "data", "n")
			}})
		}
		for i := range 20 {
			r := s.Must(http.StatusCreated, "POST", s.path("configmaps"), body("configmaps", fmt.Sprint("o", i)))
			if got := r.Text("data", "n"); got != "x" {
				t.Errorf("n is %q", got)
			}
		}
	})
}
