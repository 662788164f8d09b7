package serving

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

const defaultConfigMaps = "/api/v1/namespaces/default/configmaps"

// TestKilled kills the server while clients write, and checks that all acknowledged writes exist.
func TestKilled(t *testing.T) {
	speed.Long(t)
	t.Parallel()
	s := harness.Sole(t)
	acknowledged := map[string]bool{}
	for round := range 2 {
		var mu sync.Mutex
		var writers sync.WaitGroup
		enough := make(chan struct{})
		ctx, stop := context.WithCancel(t.Context())
		for w := range 4 {
			writers.Go(func() {
				h := s.HTTP(t, nil)
				for i := 0; ctx.Err() == nil; i++ {
					name := fmt.Sprintf("r%d-w%d-%d", round, w, i)
					code, err := h.Try(ctx, "POST", defaultConfigMaps, configMap(name))
					if err != nil {
						return
					}
					if code != http.StatusCreated {
						t.Errorf("create: %d", code)
						return
					}
					mu.Lock()
					acknowledged[name] = true
					if len(acknowledged) == (round+1)*200 {
						close(enough)
					}
					mu.Unlock()
				}
			})
		}
		<-enough
		s.Kill(t)
		writers.Wait()
		stop()
		s.Restart(t)
		stored := map[string]bool{}
		for _, name := range names(s.HTTP(t, nil).Get(defaultConfigMaps)) {
			stored[name] = true
		}
		for name := range acknowledged {
			if !stored[name] {
				t.Errorf("%s was acknowledged and is not there", name)
			}
		}
		// Each writer may have one executed request whose response was lost.
		if extra := len(stored) - len(acknowledged); extra > 4*(round+1) {
			t.Errorf("%d objects that nobody was told of", extra)
		}
	}
}

// TestInformerAcrossRestart keeps a client-go informer running through a kill of the server, and through a restart in
// the long run.
func TestInformerAcrossRestart(t *testing.T) {
	t.Parallel()
	s := harness.Sole(t)
	client := harness.Client(t, s.Admin)
	factory := informers.NewSharedInformerFactory(client, 0)
	informer := factory.Core().V1().ConfigMaps().Informer()
	seen := make(chan string, 100)
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { seen <- "add " + obj.(*corev1.ConfigMap).Name },
		DeleteFunc: func(obj any) { seen <- "delete " + obj.(cache.ObjectName).Name },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer factory.Shutdown()
	defer stop()
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	expect := func(want string) {
		t.Helper()
		for {
			select {
			case got := <-seen:
				if got == want {
					return
				}
			case <-time.After(harness.Patience):
				t.Fatalf("the informer did not see %q", want)
			}
		}
	}
	create := func(name string) {
		t.Helper()
		s.HTTP(t, nil).Must(http.StatusCreated, "POST", defaultConfigMaps, configMap(name))
		expect("add " + name)
	}
	create("before")
	s.Kill(t)
	s.Restart(t)
	create("after-a-kill")
	if speed.IsLong() {
		s.Stop(t)
		s.Restart(t)
		create("after-a-restart")
	}
	want(t, "in the cache", len(informer.GetStore().ListKeys()) >= speed.Of(2, 3), true)
}

// TestStopEndsRequests stops the server during a request and an open watch.
func TestStopEndsRequests(t *testing.T) {
	speed.Long(t)
	t.Parallel()
	s := harness.Sole(t)
	h := s.HTTP(t, nil)
	w := h.Watch(defaultConfigMaps + "?watch=1")
	body, input := io.Pipe()
	answer := make(chan *harness.Response, 1)
	go func() { answer <- s.HTTP(t, nil).Send("POST", defaultConfigMaps, body) }()
	if _, err := io.WriteString(input, configMap("slow")[:10]); err != nil {
		t.Fatal(err)
	}
	h.Must(http.StatusCreated, "POST", defaultConfigMaps, configMap("quick"))
	want(t, "event", line(w.Next()), "ADDED quick")
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		s.Stop(t)
	}()
	harness.Eventually(t, "the server says that it is about to stop", func() error {
		if code, err := h.Try(t.Context(), "GET", "/readyz", ""); err == nil && code == http.StatusOK {
			return errors.New("it is ready")
		}
		return nil
	})
	if _, err := io.WriteString(input, configMap("slow")[10:]); err != nil {
		t.Fatal(err)
	}
	input.Close()
	want(t, "code of the request under way", (<-answer).Code, http.StatusCreated)
	<-stopped
	if e, err := w.Read(); err == nil && line(e) != "ADDED slow" {
		t.Errorf("event %s", line(e))
	}
	s.Restart(t)
	s.HTTP(t, nil).Get(defaultConfigMaps + "/slow")
}

// TestDataDirInUse starts a second server on the data of the first.
func TestDataDirInUse(t *testing.T) {
	speed.Long(t)
	t.Parallel()
	s := harness.Start(t)
	second := harness.Run(t, "serve", "--data-dir", s.DataDir, "--secure-port", "0")
	want(t, "exit code", second.Code, 1)
	if !strings.Contains(second.Err, s.DataDir) || !strings.Contains(second.Err, "in use") || strings.Count(second.Err, "\n") != 1 {
		t.Errorf("standard error %q", second.Err)
	}
	want(t, "standard output", second.Out, "")
	s.HTTP(t, nil).Must(http.StatusCreated, "POST", defaultConfigMaps, configMap("still-works"))
}

func TestCannotStart(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	port := s.URL[strings.LastIndex(s.URL, ":")+1:]
	corrupt := t.TempDir()
	snap := filepath.Join(corrupt, "etcd", "member", "snap")
	if err := os.MkdirAll(snap, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(snap, "db"), []byte(strings.Repeat("garbage", 5000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range speed.Some(t, 3, []struct {
		name string
		args []string
		code int
		text string
	}{
		{"a port in use", []string{"--data-dir", t.TempDir(), "--secure-port", port}, 1, "port " + port},
		{"no such port", []string{"--data-dir", t.TempDir(), "--secure-port", "70000"}, 2, "--secure-port"},
		{"no such flag", []string{"--data-dirr", t.TempDir()}, 2, "--data-dir"},
		{"no such mode", []string{"--data-dir", t.TempDir(), "--secure-port", "0", "--authorization-mode", "ABAC"}, 2, "--authorization-mode"},
		{"a file that is not there", []string{"--data-dir", t.TempDir(), "--secure-port", "0", "--token-auth-file", "/no/such/file"}, 2, "--token-auth-file"},
		{"a data directory that is a file", []string{"--data-dir", harness.Binary(t), "--secure-port", "0"}, 1, "--data-dir"},
		{"corrupt data", []string{"--data-dir", corrupt, "--secure-port", "0"}, 1, corrupt},
		{"an etcd that is not there", []string{"--data-dir", t.TempDir(), "--secure-port", "0", "--etcd-servers", "http://127.0.0.1:1"}, 1, "http://127.0.0.1:1"},
	}) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := harness.Run(t, append([]string{"serve"}, c.args...)...)
			want(t, "exit code", r.Code, c.code)
			want(t, "standard output", r.Out, "")
			if !strings.Contains(r.Err, c.text) || strings.Contains(r.Err, "goroutine ") || strings.Count(r.Err, "\n") > 2 {
				t.Errorf("standard error %q", r.Err)
			}
		})
	}
}

// TestEtcdAway disconnects etcd from a server, by a kill and by a pause.
func TestEtcdAway(t *testing.T) {
	t.Parallel()
	balancer := regexp.MustCompile(`option httpchk GET (\S+)`).FindStringSubmatch(harness.OperationsPages(t))
	if balancer == nil {
		t.Fatal("the page has no balancer")
	}
	etcd := harness.StartEtcd(t)
	s := harness.Start(t, "--etcd-servers", etcd.URL)
	h := s.HTTP(t, nil)
	h.Must(http.StatusCreated, "POST", defaultConfigMaps, configMap("before"))
	factory := informers.NewSharedInformerFactory(harness.Client(t, s.Admin), 0)
	lister := factory.Core().V1().ConfigMaps().Lister().ConfigMaps("default")
	ctx, stop := context.WithCancel(t.Context())
	defer factory.Shutdown()
	defer stop()
	factory.Core().V1().ConfigMaps().Informer()
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())

	for i, away := range speed.Some(t, 1, []struct {
		name        string
		leave, back func()
	}{
		{"killed", func() { etcd.Kill(t) }, func() { etcd.Start(t) }},
		{"paused", func() { etcd.Pause(t) }, func() { etcd.Resume(t) }},
	}) {
		t.Run(away.name, func(t *testing.T) {
			away.leave()
			began := time.Now()
			code, err := s.HTTP(t, nil).Try(harness.Context(t), "POST", defaultConfigMaps+"?timeout=5s", configMap(fmt.Sprintf("lost-%d", i)))
			// A response at the time limit of the request resets its stream.
			reset := err != nil && strings.Contains(err.Error(), "INTERNAL_ERROR")
			if !reset && (err != nil || (code < 500 && code != http.StatusTooManyRequests)) {
				t.Errorf("a write without etcd: %d, %v", code, err)
			}
			if took := time.Since(began); took > 12*time.Second {
				t.Errorf("a write without etcd took %s", took)
			}
			// The server is live, but not ready.
			s.HTTP(t, nil).Get("/livez?exclude=etcd")
			// The page's balancer keeps the server: no other would be better.
			s.HTTP(t, nil).Get(balancer[1])
			if code, err := s.HTTP(t, nil).Try(harness.Context(t), "GET", "/readyz", ""); err != nil || code == http.StatusOK {
				t.Errorf("readyz without etcd: %d, %v", code, err)
			}
			away.back()
			name := fmt.Sprintf("after-%d", i)
			harness.Eventually(t, "writes work again", func() error {
				code, err := s.HTTP(t, nil).Try(harness.Context(t), "POST", defaultConfigMaps+"?timeout=5s", configMap(name))
				if err != nil || (code != http.StatusCreated && code != http.StatusConflict) {
					return fmt.Errorf("%d, %v", code, err)
				}
				return nil
			})
			harness.Eventually(t, "the server is ready again", func() error {
				if code, err := s.HTTP(t, nil).Try(harness.Context(t), "GET", "/readyz", ""); err != nil || code != http.StatusOK {
					return fmt.Errorf("%d, %v", code, err)
				}
				return nil
			})
			harness.Eventually(t, "the informer sees what was written", func() error {
				_, err := lister.Get(name)
				return err
			})
		})
	}
	s.HTTP(t, nil).Get(defaultConfigMaps + "/before")
}

// TestReplicas runs two servers on one etcd.
func TestReplicas(t *testing.T) {
	speed.Long(t)
	t.Parallel()
	etcd := harness.StartEtcd(t)
	one := harness.Start(t, "--etcd-servers", etcd.URL)
	two := harness.Start(t, "--etcd-servers", etcd.URL)
	w := two.HTTP(t, nil).Watch(defaultConfigMaps + "?watch=1&fieldSelector=metadata.name=shared")
	one.HTTP(t, nil).Must(http.StatusCreated, "POST", defaultConfigMaps, configMap("shared"))
	want(t, "event", line(w.Next()), "ADDED shared")
	// A read without a resourceVersion includes all writes acknowledged by any replica.
	for i := range 20 {
		name := fmt.Sprintf("n%d", i)
		one.HTTP(t, nil).Must(http.StatusCreated, "POST", defaultConfigMaps, configMap(name))
		two.HTTP(t, nil).Get(defaultConfigMaps + "/" + name)
		want(t, "list", len(names(two.HTTP(t, nil).Get(defaultConfigMaps+"?fieldSelector=metadata.name="+name))), 1)
	}
	ns := one.Namespace(t)
	two.HTTP(t, nil).Must(http.StatusCreated, "POST", "/api/v1/namespaces/"+ns+"/configmaps", configMap("c"))
	two.HTTP(t, nil).Must(http.StatusOK, "DELETE", "/api/v1/namespaces/"+ns, "")
	harness.Eventually(t, "the namespace is gone", func() error {
		if code, err := one.HTTP(t, nil).Try(harness.Context(t), "GET", "/api/v1/namespaces/"+ns, ""); err != nil || code != http.StatusNotFound {
			return fmt.Errorf("%d, %v", code, err)
		}
		return nil
	})
}
