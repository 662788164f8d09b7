package harness

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
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
	// Admin is the administrator's configuration, without a client-side rate limit. Callers copy it before
	// they change it.
	Admin *rest.Config

	// program is the path of the program to run; empty means the program under test.
	program string
	args    []string
	runner  Runner
	// clock is the offset of the clock of the next process.
	clock time.Duration
	// ended is the log of the last stopped process.
	ended string
	// wrap, if set, replaces a command and its process attributes.
	wrap func(name string, args ...string) (string, []string, *syscall.SysProcAttr)
}

// Controllers are the default controllers of test servers. The service account controller is the only one
// that creates objects; pods need these.
var Controllers = []string{
	"serviceaccount-controller", "namespace-controller", "clusterrole-aggregation-controller", "validatingadmissionpolicy-status-controller",
}

// Runner is a running server.
type Runner interface {
	// Stop ends the server in order, Kill at once. Both return an error if the server ended or behaved
	// wrongly.
	Stop() error
	Kill() error
}

// Start runs a server with the given flags of serve and stops it at the end of the test. By default the
// server runs only Controllers, without priority and fairness; --controllers and
// --enable-priority-and-fairness override that. Start fails the test if the server does not become ready,
// does not end in order, or logs a panic.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return StartOn(t, t.TempDir(), args...)
}

// StartTest runs a server with --test and the given flags of serve. The server chooses its own data
// directory.
func StartTest(t testing.TB, args ...string) *Server {
	t.Helper()
	return StartOn(t, "", append([]string{"--test"}, args...)...)
}

// StartOn is Start with a data directory, which may contain data.
func StartOn(t testing.TB, dir string, args ...string) *Server {
	t.Helper()
	return startServer(t, &Server{DataDir: dir, args: args})
}

func startServer(t testing.TB, s *Server) *Server {
	t.Helper()
	speed.Server(t)
	reportFailure(t, s)
	port, release, err := reservePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	if err := s.start(port); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if s.runner != nil {
			s.Stop(t)
		}
	})
	return s
}

// StartProgram is StartOn with another program, such as the result of Previous.
func StartProgram(t testing.TB, program, dir string, args ...string) *Server {
	t.Helper()
	return startServer(t, &Server{program: program, DataDir: dir, args: args})
}

// Become runs another program, such as the result of Previous, on the data and the port of a stopped or
// killed server. An empty path means the program under test.
func (s *Server) Become(t testing.TB, program string) {
	t.Helper()
	s.program = program
	s.Restart(t)
}

// Flags sets the flags of the server's next start.
func (s *Server) Flags(args ...string) { s.args = args }

// Adopt returns a Server for a running server that was started by other means, and stops it at the end of the
// test.
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

// Refuses runs a server that must fail to start with the given flags of serve, and returns its standard error
// without the line that points to --help.
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
	// Another release may not know the flag.
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

// Stop ends the server with SIGTERM. It fails the test if the server does not end in order or logged a panic.
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

// Kill ends the server with SIGKILL.
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

// Restart restarts a stopped or killed server on the same data and port.
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

// Log returns the log of the server since its last start; empty for a server in the test process.
func (s *Server) Log() string {
	if p, ok := s.runner.(*process); ok {
		return p.log.String()
	}
	return s.ended
}

// Shared returns the server for tests that do not disturb each other. The first caller starts it. It knows
// the users in Tokens, and serves the versions that upstream no longer serves.
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

// FreePort returns an unused port for a program of the test. On Linux, no other process gets it before the test ends.
func FreePort(t testing.TB) string {
	t.Helper()
	port, release, err := reservePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	if port != "0" {
		return port
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}
