package operations

import (
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

const service = "Run as a service"

// deployed returns the folder with the systemd unit and the manifests.
func deployed(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", "..", "deploy"))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// systemd accepts the unit, and its exposure level is at most 2.0.
func TestTheUnitIsHardened(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed: the package systemd of the distribution has it")
	}
	text, err := os.ReadFile(filepath.Join(deployed(t), "systemd", "gatehouse.service"))
	if err != nil {
		t.Fatal(err)
	}
	const program = "/usr/local/bin/gatehouse"
	if !strings.Contains(string(text), "\nExecStart="+program+" ") {
		t.Fatalf("the unit does not run %s", program)
	}
	// systemd checks that the program exists.
	unit := harness.WriteFile(t, filepath.Join(t.TempDir(), "gatehouse.service"), strings.ReplaceAll(string(text), program, harness.Binary(t)))
	for _, args := range [][]string{{"verify", unit}, {"security", "--offline=true", "--threshold=20", "--no-pager", unit}} {
		if out, err := exec.CommandContext(harness.Context(t), analyze, args...).CombinedOutput(); err != nil {
			t.Errorf("systemd-analyze %s: %v\n%s", args[0], err, out)
		}
	}
}

// A server notifies systemd that it is ready, that it is alive (the watchdog), and that it is stopping.
func TestTheServerReportsToSystemd(t *testing.T) {
	dir, err := os.MkdirTemp("", "notify-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	next := func() string {
		t.Helper()
		if err := socket.SetReadDeadline(time.Now().Add(harness.StartTimeout)); err != nil {
			t.Fatal(err)
		}
		message := make([]byte, 100)
		n, err := socket.Read(message)
		if err != nil {
			t.Fatal(err)
		}
		return string(message[:n])
	}
	t.Setenv("NOTIFY_SOCKET", filepath.Join(dir, "s"))
	t.Setenv("WATCHDOG_USEC", "900000")
	s := harness.Start(t)
	for _, want := range []string{"READY=1", "WATCHDOG=1", "WATCHDOG=1"} {
		if got := next(); got != want {
			t.Fatalf("the server reports %s, want %s", got, want)
		}
	}
	s.Stop(t)
	last := next()
	for last == "WATCHDOG=1" {
		last = next()
	}
	if last != "STOPPING=1" {
		t.Errorf("the server reports %s at its end, want STOPPING=1", last)
	}
}

// A cluster accepts the manifests, even in a namespace for restricted pods.
func TestTheManifests(t *testing.T) {
	t.Parallel()
	s := harness.Sole(t)
	a := harness.NewAdministrator(t).Of(s)
	if err := os.Symlink(deployed(t), filepath.Join(a.Dir, "deploy")); err != nil {
		t.Fatal(err)
	}
	// The folder passes a check without kustomize.
	if r := harness.Run(t, "check", deployed(t)); r.Code != 0 {
		t.Errorf("check of the folder: exit code %d\n%s%s", r.Code, r.Out, r.Err)
	}
	a.Follow(t, service, "kustomize/base")
	for _, name := range []string{"ca.crt", "tls.crt", "tls.key"} {
		a.Write(t, name, []byte("x"))
	}
	harness.Contains(t, "what the page's commands print", a.Follow(t, service, "kustomize/three"), "statefulset.apps/gatehouse created", "poddisruptionbudget.policy/gatehouse created")
	if n := s.HTTP(t, nil).Get("/apis/apps/v1/namespaces/default/statefulsets/gatehouse").At("spec", "replicas"); n != 3.0 {
		t.Errorf("there are %v servers, want 3", n)
	}
	s.HTTP(t, nil).Must(http.StatusCreated, "POST", namespaces, `{"metadata":{"name":"guarded","labels":{"pod-security.kubernetes.io/enforce":"restricted","pod-security.kubernetes.io/warn":"restricted"}}}`)
	for _, file := range []string{"one.yaml", "three.yaml"} {
		r := harness.Run(t, "kubectl", "--kubeconfig", s.Kubeconfig, "apply", "-n", "guarded", "-f", filepath.Join(a.Dir, file))
		if r.Code != 0 || strings.Contains(r.Err, "Warning") {
			t.Errorf("%s among restricted pods: exit code %d\n%s", file, r.Code, r.Err)
		}
	}
}
