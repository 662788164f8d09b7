package aggregation

import (
	"context"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"k8s.io/sample-apiserver/pkg/cmd/server"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// asSample is the environment variable that makes the test binary run the sample server of Kubernetes.
const asSample = "GATEHOUSE_TEST_SAMPLE_APISERVER"

func TestMain(m *testing.M) {
	if os.Getenv(asSample) != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		cmd := server.NewCommandStartWardleServer(ctx, server.NewWardleServerOptions(os.Stdout, os.Stderr), false)
		cmd.SilenceUsage = true
		err := cmd.Execute()
		stop()
		if err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(harness.Main(m))
}

// sample is the unmodified sample API server of Kubernetes, with its own etcd storage. It serves flunders in
// v1alpha1 and v1beta1, and fischers in v1alpha1.
type sample struct {
	port    string
	bundle  []byte
	args    []string
	process *exec.Cmd
	log     strings.Builder
}

// newSample configures the server to run behind main.
func newSample(t *testing.T, main *harness.Server, port string) *sample {
	t.Helper()
	authority := harness.NewAuthority(t, "wardle")
	cert, key := authority.Pair(t, "api.wardle.svc", "localhost")
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	for file, data := range map[string][]byte{certFile: cert, keyFile: key} {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return &sample{port: port, bundle: authority.Bundle, args: []string{
		"--etcd-servers", harness.StartEtcd(t).URL, "--secure-port", port, "--bind-address", "127.0.0.1",
		"--tls-cert-file", certFile, "--tls-private-key-file", keyFile,
		"--kubeconfig", main.Kubeconfig, "--authentication-kubeconfig", main.Kubeconfig, "--authorization-kubeconfig", main.Kubeconfig,
	}}
}

// start runs the server until the end of the test.
func (s *sample) start(t *testing.T) {
	t.Helper()
	s.launch(t)
	t.Cleanup(func() {
		s.stop(t)
		if t.Failed() {
			t.Logf("the sample server: %s", s.log.String())
		}
	})
}

// launch restarts the server after stop.
func (s *sample) launch(t *testing.T) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s.process = exec.Command(program, s.args...)
	s.process.Env = append(os.Environ(), asSample+"=1")
	s.process.Stderr = &s.log
	if err := s.process.Start(); err != nil {
		t.Fatal(err)
	}
}

// stop stops the server.
func (s *sample) stop(t *testing.T) {
	t.Helper()
	if s.process == nil {
		return
	}
	_ = s.process.Process.Kill()
	_ = s.process.Wait()
	s.process = nil
}
