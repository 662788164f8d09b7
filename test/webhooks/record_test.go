package webhooks

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// recording is a running gatehouse record.
type recording struct {
	cmd *exec.Cmd
	dir string
}

// startRecording starts a recorder, and returns when it is recording.
func startRecording(t *testing.T, s *harness.Server, args ...string) *recording {
	t.Helper()
	r := &recording{dir: filepath.Join(t.TempDir(), "requests")}
	r.cmd = exec.CommandContext(t.Context(), harness.Binary(t), append([]string{"record", "--kubeconfig", s.Kubeconfig, "--output", r.dir}, args...)...)
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	// Use a file instead of a pipe: the guard process outlives the recorder, and would keep a pipe open.
	log := filepath.Join(t.TempDir(), "log")
	f, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r.cmd.Stderr = f
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		_ = r.cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "gatehouse records into ") {
		text, _ := os.ReadFile(log)
		t.Fatalf("it says %q, %v: %s", line, err, text)
	}
	return r
}

// lines returns the recorded requests by operation and name.
func (r *recording) lines(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(r.dir, "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			var q struct{ Operation, Namespace, Name string }
			if err := json.Unmarshal([]byte(line), &q); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			found[q.Operation+" "+q.Name] = line
		}
	}
	return found
}

// recorders returns the webhook configurations of recorders.
func recorders(t *testing.T, s *harness.Server) []string {
	t.Helper()
	list, err := harness.Client(t, s.Admin).AdmissionregistrationV1().MutatingWebhookConfigurations().List(harness.Context(t), metav1.ListOptions{LabelSelector: "gatehouse.dev/recorder=true"})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

// S25.12, S25.13: writes to a cluster are recorded, and the recorder's webhook configuration is removed
// however the recorder ends.
func TestRecorders(t *testing.T) {
	s := harness.Shared(t)
	for _, end := range append(speed.Some(t, 1, []syscall.Signal{syscall.SIGKILL, syscall.SIGHUP}), syscall.SIGTERM) {
		t.Run(end.String(), func(t *testing.T) {
			if signal.Ignored(end) {
				t.Skip("this process ignores the signal, and so does what it starts: it runs under nohup")
			}
			ns := s.Namespace(t)
			admin := s.HTTP(t, s.Admin)
			r := startRecording(t, s, "--namespaces", ns, "--redact", "configmaps:data.password")
			if got := recorders(t, s); len(got) != 1 {
				t.Fatalf("registrations %v", got)
			}
			at := harness.ConfigMaps(ns)
			admin.Must(201, "POST", at, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"password":"hidden","k":"v"}}`)
			admin.Must(200, "PATCH", at+"/a", `{"data":{"k":"w"}}`, "Content-Type", "application/merge-patch+json")
			admin.Must(201, "POST", "/api/v1/namespaces/"+ns+"/secrets", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"stringData":{"p":"hidden"}}`)
			admin.Must(201, "POST", harness.ConfigMaps("default"), harness.ToJSON(harness.ConfigMap("elsewhere-"+ns)))
			if end != syscall.SIGTERM {
				// A killed recorder has written all requests older than a second.
				harness.Eventually(t, "the requests are in a file", func() error {
					if n := len(r.lines(t)); n != 3 {
						return fmt.Errorf("%d requests", n)
					}
					return nil
				})
			}
			if err := r.cmd.Process.Signal(end); err != nil {
				t.Fatal(err)
			}
			err := r.cmd.Wait()
			if (end == syscall.SIGTERM) != (err == nil) {
				t.Errorf("it ends with %v", err)
			}
			if end == syscall.SIGTERM {
				if got := recorders(t, s); len(got) != 0 {
					t.Errorf("registrations after the end: %v", got)
				}
			}
			harness.Eventually(t, "the registration is gone", func() error {
				if got := recorders(t, s); len(got) != 0 {
					return fmt.Errorf("registrations %v", got)
				}
				return nil
			})
			got := r.lines(t)
			for _, want := range []struct{ request, part string }{
				{"CREATE a", `"k":"v"`}, {"CREATE a", `"password":"redacted"`}, {"UPDATE a", `"k":"w"`}, {"UPDATE a", `"oldObject"`}, {"CREATE s", `"p":"e30="`}, {"CREATE s", `"removed":["the values of data"]`},
			} {
				if !strings.Contains(got[want.request], want.part) {
					t.Errorf("%s: %q has no %s", want.request, got[want.request], want.part)
				}
			}
			for request, line := range got {
				if strings.Contains(line, "hidden") || strings.Contains(line, "aGlkZGVu") {
					t.Errorf("%s shows what is hidden: %s", request, line)
				}
			}
			if len(got) != 3 {
				t.Errorf("recorded %v", got)
			}
		})
	}
}

// S25.12: a recorder that the server cannot reach reports that, and leaves nothing behind.
func TestARecorderThatIsNotReachedSaysSo(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	dir := t.TempDir()
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--url", "https://" + harness.Refused(t)}, 1, "no call arrived"},
		{[]string{"--resources", "pod,nothing"}, 2, `the cluster has no resource "nothing"`},
		{[]string{"--redact", "a."}, 2, "ends with a dot"},
		{[]string{"--bind-address", "0.0.0.0"}, 1, "add --service or --url"},
		{[]string{"--max-size", "1"}, 2, "must be at least 64Ki"},
	} {
		r := harness.Run(t, append([]string{"record", "--kubeconfig", s.Kubeconfig, "--output", dir}, c.args...)...)
		if r.Code != c.code || !strings.Contains(r.Err, c.want) {
			t.Errorf("%v: %d %s", c.args, r.Code, r.Err)
		}
	}
	if got := recorders(t, s); len(got) != 0 {
		t.Errorf("registrations %v", got)
	}
}
