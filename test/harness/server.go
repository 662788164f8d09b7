package harness

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// Server is a running gatehouse.
type Server struct {
	// URL is https://HOST:PORT; Kubeconfig is a file with the administrator's
	// credentials.
	URL, Kubeconfig string
	// DataDir is the data directory.
	DataDir string
	// Admin is the administrator's configuration, without a limit of its own
	// on the rate of requests. Callers copy it before they change it.
	Admin *rest.Config

	// program is what runs instead of the program under test; empty for that.
	program string
	args    []string
	runner  Runner
	// clock is how far ahead the clock of the next process is.
	clock time.Duration
	// ended is the log of the last process that was stopped.
	ended string
	// wrap, when set, says what is run in place of a command, and how.
	wrap func(name string, args ...string) (string, []string, *syscall.SysProcAttr)
}

// Controllers are those that servers of tests run unless a test says which: of those that
// make objects of their own among those of the test, only the one that pods need.
var Controllers = []string{
	"serviceaccount-controller", "namespace-controller", "clusterrole-aggregation-controller", "validatingadmissionpolicy-status-controller",
}

// Runner is a server that runs.
type Runner interface {
	// Stop ends the server in order, Kill at once. The error is what was wrong
	// with the server's life.
	Stop() error
	Kill() error
}

// Start runs a server with the given flags of serve, with two controllers only if
// --controllers is not among them, and without priority and fairness if
// --enable-priority-and-fairness is not. It stops the server when the test
// is over. It fails the test when the server does not get ready, does not end
// in order, or logs a panic.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return StartOn(t, t.TempDir(), args...)
}

// StartTest runs a server for tests, with the given flags of serve besides --test. It
// chooses its own data directory.
func StartTest(t testing.TB, args ...string) *Server {
	t.Helper()
	return StartOn(t, "", append([]string{"--test"}, args...)...)
}

// StartOn is Start with a data directory, which may have data.
func StartOn(t testing.TB, dir string, args ...string) *Server {
	t.Helper()
	return startServer(t, &Server{DataDir: dir, args: args})
}

func startServer(t testing.TB, s *Server) *Server {
	t.Helper()
	speed.Server(t)
	reportFailure(t, s)
	if err := s.start("0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if s.runner != nil {
			s.Stop(t)
		}
	})
	return s
}

// StartProgram is StartOn with another program, such as that of Previous.
func StartProgram(t testing.TB, program, dir string, args ...string) *Server {
	t.Helper()
	return startServer(t, &Server{program: program, DataDir: dir, args: args})
}

// Become runs another program on the data and the port of a server that was stopped or killed:
// that of Previous, or with an empty name that under test.
func (s *Server) Become(t testing.TB, program string) {
	t.Helper()
	s.program = program
	s.Restart(t)
}

// Flags gives the server other flags at its next start.
func (s *Server) Flags(args ...string) { s.args = args }

// Adopt makes a Server of one that runs by other means, and stops it when the test is over.
func Adopt(t testing.TB, r Runner, dataDir, url, kubeconfig string) *Server {
	t.Helper()
	s := &Server{DataDir: dataDir, runner: r}
	if err := s.reached(url, kubeconfig); err != nil {
		_ = r.Stop()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if s.runner != nil {
			s.Stop(t)
		}
	})
	return s
}

// Refuses runs a server that must not start with the given flags of serve, and returns what
// it says on standard error, but for the line that leads to --help.
func Refuses(t testing.TB, args ...string) string {
	t.Helper()
	r := Run(t, append([]string{"serve", "--data-dir", t.TempDir(), "--secure-port", "0"}, args...)...)
	if r.Code == 0 || r.Out != "" {
		t.Errorf("exit code %d, standard output %q", r.Code, r.Out)
	}
	text, _, _ := strings.Cut(r.Err, "\nRun 'gatehouse serve --help'")
	return strings.TrimSpace(text)
}

var readyLine = regexp.MustCompile(`^gatehouse is ready at (https://\S+), kubeconfig (.+)$`)

func (s *Server) start(port string) error {
	name, err := s.program, error(nil)
	if name == "" {
		name, err = binary()
	}
	if err != nil {
		return err
	}
	args := append([]string{"serve", "--data-dir", s.DataDir, "--secure-port", port}, s.args...)
	if s.DataDir == "" {
		args = append([]string{"serve"}, s.args...)
	}
	if !slices.Contains(s.args, "--controllers") {
		args = append(args, "--controllers", strings.Join(Controllers, ","))
	}
	const fairness = "--enable-priority-and-fairness"
	// The program of another release may not know the flag.
	if s.program == "" && !slices.ContainsFunc(s.args, func(arg string) bool { return strings.HasPrefix(arg, fairness) }) {
		args = append(args, fairness+"=false")
	}
	attr := tied()
	if s.wrap != nil {
		name, args, attr = s.wrap(name, args...)
	}
	p, match, err := startProcessAs(attr, s.clock, readyLine, name, args...)
	if err != nil {
		return err
	}
	s.runner = p
	return s.reached(match[1], match[2])
}

func (s *Server) reached(url, kubeconfig string) error {
	s.URL, s.Kubeconfig = url, kubeconfig
	admin, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	admin.QPS = -1
	s.Admin = admin
	return nil
}

// Stop ends the server as SIGTERM does. It fails the test when the server does
// not end in order or logged a panic.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	r := s.runner
	s.runner = nil
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
	if p, ok := r.(*process); ok {
		s.ended = p.log.String()
	}
}

// Kill ends the server as SIGKILL does.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	r := s.runner
	s.runner = nil
	if err := r.Kill(); err != nil {
		t.Error(err)
	}
	if p, ok := r.(*process); ok {
		s.ended = p.log.String()
	}
}

// Restart starts a server that was stopped or killed again, on the same data and
// the same port.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(u.Host)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.start(port); err != nil {
		t.Fatal(err)
	}
}

// Log is what the server has logged since it was started; empty for one that
// runs in the test process.
func (s *Server) Log() string {
	if p, ok := s.runner.(*process); ok {
		return p.log.String()
	}
	return s.ended
}

// Shared returns the server for tests that do not disturb one another. It is
// started by the first test that wants it, knows the users in Tokens, and serves the
// versions that upstream no longer serves.
func Shared(t testing.TB) *Server {
	t.Helper()
	speed.Server(t)
	s, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	reportFailure(t, s)
	return s
}

// legacy is the entry of --runtime-config for the versions that upstream no longer serves.
const legacy = "api/legacy=true"

var sharedStarted bool

var shared = sync.OnceValues(func() (*Server, error) {
	dir, err := workDir()
	if err != nil {
		return nil, err
	}
	tokens := filepath.Join(dir, "tokens.csv")
	if err := os.WriteFile(tokens, []byte(tokenFile()), 0o600); err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "shared")
	sharedStarted = true
	s := &Server{DataDir: data, args: []string{"--token-auth-file", tokens, "--runtime-config", legacy}}
	if err := s.start("0"); err != nil {
		return nil, fmt.Errorf("shared server: %w", err)
	}
	return s, nil
})
