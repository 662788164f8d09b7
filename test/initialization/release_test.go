package initialization

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gatehouse-dev/gatehouse/initializer"
	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// withFinalizers returns a configuration for config maps; initializers with a * have their own finalizer.
func withFinalizers(name string, names ...string) string {
	var list []any
	for _, n := range names {
		n, has := strings.CutSuffix(n, "*")
		i := map[string]any{"name": n + ".example.com", "rules": []any{map[string]any{
			"apiGroups": []string{""}, "apiVersions": []string{"v1"}, "resources": []string{"configmaps"},
		}}}
		if has {
			i["finalizer"] = "example.com/" + n
		}
		list = append(list, i)
	}
	return text(map[string]any{"metadata": map[string]any{"name": name}, "initializers": list})
}

// pool is an external system from which initializers allocate.
type pool struct {
	mu       sync.Mutex
	used     map[types.UID]bool
	released map[types.UID]int
}

func newPool() *pool { return &pool{used: map[types.UID]bool{}, released: map[types.UID]int{}} }

func (p *pool) allocate(_ context.Context, obj *unstructured.Unstructured) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if strings.HasPrefix(obj.GetName(), "o") {
		p.used[obj.GetUID()] = true
	}
	return nil
}

func (p *pool) release(_ context.Context, obj *unstructured.Unstructured) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used[obj.GetUID()] {
		p.used[obj.GetUID()] = false
		p.released[obj.GetUID()]++
	}
	return nil
}

// counts returns the numbers of current allocations, of all allocations, and of allocations released more
// than once.
func (p *pool) counts() (used, all, twice int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for uid, inUse := range p.used {
		if all++; inUse {
			used++
		}
		if p.released[uid] > 1 {
			twice++
		}
	}
	return used, all, twice
}

// S11.54 to S11.61: a server is killed while objects are created, half of which are rejected by the last
// initializer. The allocations of the first two initializers are released once for each rejected or deleted
// object, and never for other objects.
func TestReleaseWithAKill(t *testing.T) {
	speed.Long(t)
	t.Parallel()
	const each = 40
	s := newSite(t, harness.Sole(t, "--initializer-timeout", "10m", "--admission-consistency", "strict"))
	s.Must(http.StatusCreated, "POST", s.path("configurations"), withFinalizers("one", "a*", "b*", "c"))
	pools := map[string]*pool{"a": newPool(), "b": newPool()}
	for name, p := range pools {
		s.run(initializer.Options{Name: name + ".example.com", Finalizer: "example.com/" + name, Namespace: s.ns, Initialize: p.allocate, Release: p.release})
	}
	s.run(initializer.Options{Name: "c.example.com", Namespace: s.ns, Initialize: func(_ context.Context, obj *unstructured.Unstructured) error {
		if strings.HasSuffix(obj.GetName(), "-odd") {
			return initializer.Fail(http.StatusForbidden, "Forbidden", "it is odd")
		}
		return nil
	}})
	var group sync.WaitGroup
	slots := make(chan struct{}, 8)
	var once sync.Once
	answered := make(chan struct{})
	for i := range each {
		for _, kind := range []string{"even", "odd"} {
			group.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				code, err := s.Try(context.Background(), "POST", s.path("configmaps"), body("configmaps", fmt.Sprintf("o%d-%s", i, kind)))
				if err == nil {
					once.Do(func() { close(answered) })
				}
				if want := map[string]int{"even": http.StatusCreated, "odd": http.StatusForbidden}[kind]; err == nil && code != want {
					t.Errorf("o%d-%s: %d", i, kind, code)
				}
			})
		}
	}
	<-answered
	s.Kill(t)
	group.Wait()
	s.Restart(t)
	for i := range each {
		for _, kind := range []string{"even", "odd"} {
			_, _ = s.Try(context.Background(), "POST", s.path("configmaps"), body("configmaps", fmt.Sprintf("p%d-%s", i, kind)))
		}
		if i == each/8 {
			break
		}
	}
	left := func() (visible, hidden []string) {
		items, _ := s.Get(s.path("configmaps") + including).At("items").([]any)
		for _, item := range items {
			name := fmt.Sprint(harness.At(item, "metadata", "name"))
			switch {
			case !strings.HasSuffix(name, "-odd") && !strings.HasSuffix(name, "-even"):
			case waits(item) == "-":
				visible = append(visible, name)
			default:
				hidden = append(hidden, name)
			}
		}
		return visible, hidden
	}
	var visible []string
	harness.Eventually(t, "every object is initialized or rejected, and what was rejected is released", func() error {
		var hidden []string
		if visible, hidden = left(); len(hidden) > 0 {
			return fmt.Errorf("%q are hidden", hidden)
		}
		return nil
	})
	objects := 0
	for _, name := range visible {
		if strings.HasSuffix(name, "-odd") {
			t.Errorf("%s is visible", name)
		}
		if strings.HasPrefix(name, "o") {
			objects++
		}
	}
	for name, p := range pools {
		used, all, twice := p.counts()
		if used != objects || twice > 0 || all <= objects {
			t.Errorf("S11.61: %s has allocated %d of %d for %d objects, released %d twice", name, used, all, objects, twice)
		}
	}
	for _, name := range visible {
		s.Must(http.StatusOK, "DELETE", s.path("configmaps")+"/"+name, "")
	}
	harness.Eventually(t, "all are gone", func() error {
		if visible, hidden := left(); len(visible)+len(hidden) > 0 {
			return fmt.Errorf("%q, %q are left", visible, hidden)
		}
		return nil
	})
	for name, p := range pools {
		if used, all, twice := p.counts(); used != 0 || twice > 0 {
			t.Errorf("S11.61: %s has allocated %d of %d in the end, released %d twice", name, used, all, twice)
		}
	}
}

// S11.59: an initializer that never releases its finalizer does not block the deletion of an object for ever.
func TestReleaseIsAbandoned(t *testing.T) {
	t.Parallel()
	s := newSite(t, harness.Sole(t, fewWrites...))
	s.Must(http.StatusCreated, "POST", s.path("configurations"), withFinalizers("one", "a*", "b*"))
	s.inForce("configmaps", "a,b")
	path := s.path("configmaps") + "/o"
	done := s.create(s.HTTP, "configmaps", body("configmaps", "o"))
	s.await("configmaps", "o", "a,b")
	s.act("configmaps", "o", "")
	s.await("configmaps", "o", "b")
	r := s.Must(http.StatusOK, "PATCH", path, `{"metadata":{"initializers":{"result":{"status":"Failure","code":403,"message":"no"}}}}`, "Content-Type", mergePatch)
	if got := fmt.Sprint(r.At("metadata", "finalizers")); got != "[example.com/a]" || r.At("metadata", "deletionTimestamp") == nil {
		t.Errorf("S11.56: the object has finalizers %s: %s", got, r.Raw)
	}
	uid := r.At("metadata", "uid")
	s.answer(done).Refusal(http.StatusForbidden, "")
	if r := s.as("eve", "configmaps").Do("GET", path, ""); r.Code != http.StatusNotFound {
		t.Errorf("S11.56: a get answers %d", r.Code)
	}
	harness.Eventually(t, "it is gone", func() error {
		if r := s.Do("GET", path+including, ""); r.Code != http.StatusNotFound {
			return fmt.Errorf("%d: %s", r.Code, r.Raw)
		}
		return nil
	})
	harness.Eventually(t, "there is an event", func() error {
		items, _ := s.Get("/api/v1/namespaces/" + s.ns + "/events").At("items").([]any)
		for _, e := range items {
			if harness.At(e, "reason") == "ReleaseAbandoned" && harness.At(e, "involvedObject", "uid") == uid && harness.At(e, "involvedObject", "kind") == "ConfigMap" &&
				strings.Contains(fmt.Sprint(harness.At(e, "message")), `"a.example.com" did not remove its finalizer "example.com/a" within 2s`) {
				return nil
			}
		}
		return fmt.Errorf("there is none among %v", items)
	})
	metric := `gatehouse_initializers_abandoned_releases_total{group="",name="a.example.com",resource="configmaps"} 1`
	if r := s.Do("GET", "/metrics", ""); !strings.Contains(string(r.Raw), metric) {
		t.Error("S11.59: the release is not counted")
	}
	for _, test := range []struct{ name, pending, want string }{
		{"acted", "b", "configmap/acted failed and stays hidden until a.example.com has released its resources"},
		{"idle", "a,b", "configmap/idle failed and was deleted"},
	} {
		s.Must(http.StatusAccepted, "POST", s.path("configmaps")+including, body("configmaps", test.name))
		if test.pending == "b" {
			s.act("configmaps", test.name, "")
		}
		s.await("configmaps", test.name, test.pending)
		r := harness.Run(t, "initializers", "fail", "configmap/"+test.name, "--message", "no", "--kubeconfig", s.Kubeconfig, "--namespace", s.ns)
		if r.Code != 0 || strings.TrimSpace(r.Out) != test.want {
			t.Errorf("S11.56 %s: exit code %d: %s%s", test.name, r.Code, r.Out, r.Err)
		}
	}
}
