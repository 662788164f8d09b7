package initialization

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gatehouse-dev/gatehouse/initializer"
	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// sidecarInitializer builds the example controller.
func sidecarInitializer(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sidecar-initializer")
	out, err := exec.Command("go", "build", "-o", path, "github.com/gatehouse-dev/gatehouse/examples/sidecar-initializer").CombinedOutput()
	if err != nil {
		t.Fatalf("building the example: %v\n%s", err, out)
	}
	return path
}

// worker is an initializer process that adds a container with the worker's name.
type worker struct {
	*exec.Cmd
}

func startWorker(t *testing.T, s *site, path, name string) worker {
	t.Helper()
	cmd := exec.Command(path, "--kubeconfig", s.Kubeconfig, "--name", name+".example.com", "--container", name, "--workers", "8")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return worker{cmd}
}

// end sends a signal to the process and waits for its end.
func (w worker) end(signal syscall.Signal) {
	_ = w.Process.Signal(signal)
	_ = w.Wait()
}

// A thousand deployments are created at once. One of the two processes that initialize them is killed and
// restarted meanwhile. Without includeUninitialized, a deployment is visible only after both have acted, and
// none is lost.
func TestThousandDeployments(t *testing.T) {
	speed.Long(t)
	t.Parallel()
	const count = 1000
	s := newSite(t, harness.Start(t, "--initializer-timeout", "10m", "--admission-consistency", "strict"))
	path := sidecarInitializer(t)
	s.register("one", "deployments", "first,second", "first.example.com", "second.example.com")
	first, second := startWorker(t, s, path, "first"), startWorker(t, s, path, "second")
	defer func() { first.end(syscall.SIGTERM) }()
	defer func() { second.end(syscall.SIGTERM) }()

	config := harness.Protobuf(s.Admin)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	plain, err := client.AppsV1().Deployments(s.ns).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { plain.Stop() }()

	var created atomic.Int64
	begin := time.Now()
	var group sync.WaitGroup
	creators := make(chan int)
	for range 200 {
		group.Go(func() {
			for i := range creators {
				name := fmt.Sprintf("d%04d", i)
				code, err := s.Try(ctx, "POST", s.path("deployments"), body("deployments", name))
				// The time limit of a request is 34 s; a deployment exists even after a 504.
				if err != nil || code != http.StatusCreated && code != http.StatusGatewayTimeout {
					t.Errorf("%s: %d, %v", name, code, err)
				}
				created.Add(1)
			}
		})
	}
	group.Go(func() {
		defer close(creators)
		for i := range count {
			creators <- i
		}
	})

	seen := map[string]bool{}
	version := ""
	for len(seen) < count {
		select {
		case e, ok := <-plain.ResultChan():
			if !ok {
				// The server closes the watches of slow clients. The test resumes from the last event, and
				// misses none.
				if plain, err = client.AppsV1().Deployments(s.ns).Watch(ctx, metav1.ListOptions{ResourceVersion: version}); err != nil {
					t.Fatal(err)
				}
				continue
			}
			d, ok := e.Object.(*appsv1.Deployment)
			if !ok {
				t.Fatalf("event %v", e)
			}
			version = d.ResourceVersion
			if e.Type == "ADDED" {
				if seen[d.Name] {
					t.Errorf("%s was added twice", d.Name)
				}
				seen[d.Name] = true
			}
			if got := containers(d); got != "web,first,second" {
				t.Fatalf("%s %s was visible with containers %s", e.Type, d.Name, got)
			}
			if len(seen) == count/3 && e.Type == "ADDED" {
				second.end(syscall.SIGKILL)
				second = startWorker(t, s, path, "second")
			}
		case <-ctx.Done():
			t.Fatalf("%d of %d deployments are visible, %d creators were answered", len(seen), count, created.Load())
		}
	}
	group.Wait()
	t.Logf("%d deployments through two initializers, one of them killed on the way, in %s", count, time.Since(begin).Round(time.Millisecond))
	list, err := client.AppsV1().Deployments(s.ns).List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != count {
		t.Errorf("%d deployments, %v", len(list.Items), err)
	}
	for i := range list.Items {
		if got := containers(&list.Items[i]); got != "web,first,second" {
			t.Errorf("%s has containers %s", list.Items[i].Name, got)
		}
	}
}

func containers(d *appsv1.Deployment) string {
	var names []string
	for _, c := range d.Spec.Template.Spec.Containers {
		names = append(names, c.Name)
	}
	return strings.Join(names, ",")
}

// The server is killed while 500 creates wait. Afterwards controllers process the remaining objects, and an
// object without a controller is repaired when it is read.
func TestKilledWhileCreatorsWait(t *testing.T) {
	speed.Long(t)
	t.Parallel()
	const each = 250
	s := newSite(t, harness.Start(t, "--initializer-timeout", "10m", "--initializer-repair-after", "1s", "--admission-consistency", "strict"))
	s.register("one", "configmaps", "alive", "alive.example.com")
	s.register("two", "secrets", "dead", "dead.example.com")
	var group sync.WaitGroup
	first := time.Now()
	for i := range each {
		for _, resource := range []string{"configmaps", "secrets"} {
			group.Go(func() {
				code, err := s.Try(context.Background(), "POST", s.path(resource), body(resource, fmt.Sprint("o", i)))
				if err == nil {
					t.Errorf("a creator got %d", code)
				}
			})
		}
	}
	harness.Eventually(t, "all are stored", func() error {
		for _, resource := range []string{"configmaps", "secrets"} {
			items, _ := s.Get(s.path(resource) + including).At("items").([]any)
			n := 0
			for _, item := range items {
				if waits(item) != "-" {
					n++
				}
			}
			if n != each {
				return fmt.Errorf("%d of %d %s", n, each, resource)
			}
		}
		return nil
	})
	last := time.Now()
	s.Kill(t)
	group.Wait()
	s.Restart(t)

	visible := func(resource string) int {
		items, _ := s.Get(s.path(resource)).At("items").([]any)
		n := 0
		for _, item := range items {
			if waits(item) != "-" {
				t.Errorf("%v is visible", item)
			}
			if strings.HasPrefix(fmt.Sprint(harness.At(item, "metadata", "name")), "o") {
				n++
			}
		}
		return n
	}
	if n := visible("configmaps") + visible("secrets"); n != 0 {
		t.Errorf("S11.31: after the restart %d are visible", n)
	}
	s.run(initializer.Options{Name: "alive.example.com", Namespace: s.ns, Initialize: mark("alive")})
	harness.Eventually(t, "the controller has initialized what is left", func() error {
		if n := visible("configmaps"); n != each {
			return fmt.Errorf("%d of %d", n, each)
		}
		return nil
	})
	// S11.50, S11.51: an age of a second, plus 30 s for clock skew.
	early := s.Do("GET", s.path("secrets")+"/o0", "")
	if waits(early.Body) == "-" && time.Since(first) < 30*time.Second {
		t.Errorf("S11.51: repaired after %s", time.Since(first))
	}
	deadline := time.NewTimer(time.Until(last.Add(32 * time.Second)))
	defer deadline.Stop()
	<-deadline.C
	for i := range each {
		if r := s.Do("GET", s.path("secrets")+fmt.Sprint("/o", i), ""); r.Code != http.StatusOK || waits(r.Body) != "-" {
			t.Fatalf("S11.50: %d %s", r.Code, r.Raw)
		}
	}
}

// A stopping server waits only briefly for initializers. S11.3: without the plugin, uninitialized objects are visible
// to all, and their next write initializes them.
func TestEndWhileCreatorsWait(t *testing.T) {
	t.Parallel()
	s := newSite(t, harness.Sole(t, "--initializer-timeout", "10m", "--admission-consistency", "strict"))
	s.Must(http.StatusCreated, "POST", s.path("configurations"), configuration("one", "configmaps", "a.example.com"))
	s.inForce("configmaps", "a")
	done := s.create(s.HTTP, "configmaps", body("configmaps", "o"))
	s.await("configmaps", "o", "a")
	s.Stop(t)
	if status := s.answer(done).Refusal(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable); !strings.Contains(status.Message, "is stored and not yet initialized") {
		t.Errorf("message %q", status.Message)
	}
	off := harness.StartOn(t, s.DataDir, "--disable-admission-plugins", "Initializers")
	s = &site{Server: off, HTTP: off.HTTP(t, nil), t: t, ns: s.ns}
	if got := waits(s.Get(s.path("configmaps") + "/o").Body); got != "a" {
		t.Errorf("waits for %s", got)
	}
	r := s.Must(http.StatusOK, "PATCH", s.path("configmaps")+"/o", `{"data":{"x":"y"}}`, "Content-Type", mergePatch)
	if got := waits(r.Body); got != "-" {
		t.Errorf("after a write it waits for %s", got)
	}
	r = s.Must(http.StatusCreated, "POST", s.path("configmaps"), merged("configmaps", "new", `{"initializers":{"pending":[{"name":"x.example.com"}]}}`))
	if got := waits(r.Body); got != "-" {
		t.Errorf("a new object waits for %s", got)
	}
}
