//go:build linux

package chaos

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// configMap returns a config map with size bytes of data.
func configMap(name string, size int) string {
	return fmt.Sprintf(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": %q}, "data": {"value": %q}}`, name, strings.Repeat("x", size))
}

// nearlyFull fails the test unless writes are rejected for lack of space while reads and dry runs are
// answered.
func nearlyFull(t *testing.T, s *harness.Server, existing string) {
	t.Helper()
	h := s.HTTP(t, nil)
	for _, w := range []struct{ method, path, body string }{
		{"POST", configMaps, configMap("refused", 1)},
		{"PUT", configMaps + "/" + existing, configMap(existing, 2)},
		{"DELETE", configMaps + "/" + existing, ""},
	} {
		r := h.Do(w.method, w.path, w.body)
		status := r.Refusal(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
		if r.Header.Get("Retry-After") != "1" || !strings.Contains(status.Message, "of --min-free-disk; nothing was written") {
			t.Errorf("%s: Retry-After %q, %q", w.method, r.Header.Get("Retry-After"), status.Message)
		}
	}
	h.Get(configMaps + "/" + existing)
	h.Get("/readyz")
	h.Must(http.StatusNotFound, "GET", configMaps+"/refused", "")
	h.Must(http.StatusCreated, "POST", configMaps+"?dryRun=All", configMap("dry", 1))
	h.Must(http.StatusCreated, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
		`{"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}`)
}

// With less free space than --min-free-disk, a server starts, logs that, and serves reads.
func TestReadsGoOnWithoutSpace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := harness.StartOn(t, dir)
	s.HTTP(t, nil).Must(http.StatusCreated, "POST", configMaps, configMap("one", 1))
	s.Stop(t)
	// No disk is that large.
	s = harness.StartOn(t, dir, "--min-free-disk", "1Ei")
	nearlyFull(t, s, "one")
	if log := s.Log(); strings.Count(log, "The disk with ") != 1 || !strings.Contains(log, "refusing writes until more is free, reads continue") {
		t.Errorf("the log does not say it once:\n%s", log)
	}
	if !speed.IsLong() {
		return
	}
	s.Stop(t)
	s = harness.StartOn(t, dir)
	s.HTTP(t, nil).Must(http.StatusCreated, "POST", configMaps, configMap("two", 1))
}

func TestWritesGoOnWhenThereIsSpaceAgain(t *testing.T) {
	t.Parallel()
	s, disk := harness.StartOnDisk(t, 400*mib)
	l := newLedger()
	rounds(t, speed.Of(1, 3), func(i int) {
		var refused atomic.Int64
		stop := begin(t, l, s, fmt.Sprintf("r%d", i), func(code int) {
			if refused.Add(1); code != http.StatusServiceUnavailable {
				t.Errorf("a write was answered with %d", code)
			}
		})
		defer stop()
		progress(t, l, 100)
		one := fmt.Sprintf("one-%d", i)
		s.HTTP(t, nil).Must(http.StatusCreated, "POST", configMaps, configMap(one, 1))
		disk.Leave(t, 20*mib)
		harness.Eventually(t, "writes are refused", func() error {
			if refused.Load() == 0 {
				return errors.New("none was")
			}
			return nil
		})
		nearlyFull(t, s, one)
		disk.Leave(t, 400*mib)
		progress(t, l, 100)
	})
	l.check(t, s)
}

// A server that cannot continue logs the reason in one sentence and ends. Its acknowledged writes exist when
// it has space again.
func TestADiskThatFailsEndsTheServerWithASentence(t *testing.T) {
	speed.Long(t)
	t.Parallel()
	s, disk := harness.StartOnDisk(t, 400*mib, "--min-free-disk", "0")
	disk.Leave(t, 0)
	h := s.HTTP(t, nil)
	for i := range 200 {
		if _, err := h.Try(harness.Context(t), "POST", configMaps, configMap(fmt.Sprintf("big-%d", i), 1_000_000)); err != nil {
			break
		}
	}
	oneSentence(t, s, "no space left on device", "is full: free some space and start the server again")
}

func TestWhatWasAcknowledgedSurvivesADiskThatFails(t *testing.T) {
	speed.Long(t)
	t.Parallel()
	dir := t.TempDir()
	// Enough for the files of the log, too little for a growing database.
	s := harness.StartLimited(t, dir, 64*mib)
	h := s.HTTP(t, nil)
	var acknowledged []string
	for i := range 200 {
		name := fmt.Sprintf("big-%d", i)
		code, err := h.Try(harness.Context(t), "POST", configMaps, configMap(name, 1_000_000))
		if err != nil || code != http.StatusCreated {
			break
		}
		acknowledged = append(acknowledged, name)
	}
	oneSentence(t, s, "file too large")
	s = harness.StartOn(t, dir)
	has := stored(t, s)
	for _, name := range acknowledged {
		if has[name] == gone {
			t.Errorf("%s was acknowledged and is not there", name)
		}
	}
	t.Logf("%d writes were acknowledged, and are there", len(acknowledged))
}

// oneSentence waits until the server ends by itself, and checks for exit code 1 and one line with the reason.
func oneSentence(t *testing.T, s *harness.Server, parts ...string) {
	t.Helper()
	code, log := s.AwaitEnd(t)
	var said []string
	for line := range strings.Lines(log) {
		if strings.HasPrefix(line, "gatehouse: ") {
			said = append(said, line)
		}
	}
	if code != 1 || len(said) != 1 {
		t.Fatalf("it ended with %d and\n%s", code, log)
	}
	for _, part := range append(parts, "etcd in "+s.DataDir, "has stopped: ") {
		if !strings.Contains(said[0], part) {
			t.Errorf("it said %q, without %q", said[0], part)
		}
	}
}

// An etcd that often hangs, as on a slow disk, delays writes and loses none.
func TestASlowDiskLosesNothing(t *testing.T) {
	speed.Long(t)
	t.Parallel()
	etcd := harness.StartEtcd(t)
	s := harness.Start(t, "--etcd-servers", etcd.URL)
	l := newLedger()
	stop := begin(t, l, s, "slow", nil)
	progress(t, l, 50)
	rounds(t, 10, func(int) {
		etcd.Stall(t)
		time.Sleep(900 * time.Millisecond)
		etcd.Resume(t)
		progress(t, l, 1)
	})
	progress(t, l, 50)
	stop()
	l.check(t, s)
}
