package sessions

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// TestSessions runs the scripts in testdata/script, each a whole session with
// the real program. Besides testscript's own commands they have
//
//	serve ARGUMENTS        starts a server, waits for its ready line, sets $URL and $PORT
//	end [SIGNAL]           ends it (default TERM), checks that it exits with 0 and wrote
//	                       one line to standard output; its standard error becomes the
//	                       standard error of end. testscript's own "stop" ends the script
//	exits CODE PROGRAM ... runs a program that must exit with CODE
//	[long] ...             runs the line in the long run only
func TestSessions(t *testing.T) {
	programs := t.TempDir()
	for _, name := range []string{"gatehouse", "kubectl-gatehouse", "kube-apiserver"} {
		if err := os.Symlink(harness.Binary(t), filepath.Join(programs, name)); err != nil {
			t.Fatal(err)
		}
	}
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("HOME", filepath.Join(e.WorkDir, "home"))
			e.Setenv("PATH", programs+string(filepath.ListSeparator)+e.Getenv("PATH"))
			e.Values[serverKey{}] = new(*serverProcess)
			return nil
		},
		Condition: func(name string) (bool, error) {
			if name != "long" {
				return false, fmt.Errorf("there is no condition %q", name)
			}
			return speed.IsLong(), nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"serve": serve,
			"end":   end,
			"exits": exits,
		},
	})
}

// serverProcess is a running gatehouse serve.
type serverProcess struct {
	cmd    *exec.Cmd
	stderr bytes.Buffer
	// stdout delivers the complete standard output after the process has closed it.
	stdout chan string
}

// serverKey is the key of a script's server in its environment.
type serverKey struct{}

var readyLine = regexp.MustCompile(`^gatehouse is ready at (https://127\.0\.0\.1:(\d+)), kubeconfig (.+)\n$`)

func serve(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("use exits for a server that does not start")
	}
	path, err := exec.LookPath(filepath.Join(binDir(ts), "gatehouse"))
	ts.Check(err)
	s := &serverProcess{cmd: exec.Command(path, append([]string{"serve"}, args...)...), stdout: make(chan string, 1)}
	s.cmd.Dir = ts.MkAbs(".")
	for _, name := range []string{"HOME", "PATH", "TMPDIR", "GATEHOUSE_DATA_DIR"} {
		if v := ts.Getenv(name); v != "" {
			s.cmd.Env = append(s.cmd.Env, name+"="+v)
		}
	}
	s.cmd.Stderr = &s.stderr
	out, err := s.cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(s.cmd.Start())
	*ts.Value(serverKey{}).(**serverProcess) = s
	ts.Defer(func() {
		if s.cmd.ProcessState == nil {
			s.cmd.Process.Kill()
			s.cmd.Wait()
		}
	})
	reader := bufio.NewReader(out)
	line, _ := reader.ReadString('\n')
	match := readyLine.FindStringSubmatch(line)
	if match == nil {
		s.cmd.Process.Kill()
		s.cmd.Wait()
		ts.Fatalf("no ready line but %q; standard error:\n%s", line, s.stderr.String())
	}
	go func() {
		rest, _ := io.ReadAll(reader)
		s.stdout <- line + string(rest)
	}()
	ts.Setenv("URL", match[1])
	ts.Setenv("PORT", match[2])
	fmt.Fprint(ts.Stdout(), line)
}

// binDir is the directory of the program: the first in the script's PATH.
func binDir(ts *testscript.TestScript) string {
	dir, _, _ := strings.Cut(ts.Getenv("PATH"), string(filepath.ListSeparator))
	return dir
}

func end(ts *testscript.TestScript, neg bool, args []string) {
	signal := syscall.SIGTERM
	if len(args) > 0 {
		signal = map[string]syscall.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "KILL": syscall.SIGKILL}[args[0]]
	}
	s := *ts.Value(serverKey{}).(**serverProcess)
	ts.Check(s.cmd.Process.Signal(signal))
	out := <-s.stdout
	err := s.cmd.Wait()
	fmt.Fprint(ts.Stderr(), s.stderr.String())
	if signal == syscall.SIGKILL {
		return
	}
	if (err != nil) != neg {
		ts.Fatalf("the server ended with %v; standard error:\n%s", err, s.stderr.String())
	}
	if !readyLine.MatchString(out) {
		ts.Fatalf("more than the ready line on standard output:\n%s", out)
	}
}

func exits(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARGUMENTS")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	code := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if code != want {
		ts.Fatalf("%s exited with %d, want %d", args[1], code, want)
	}
}
