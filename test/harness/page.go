package harness

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Administrator runs the commands of the operations pages in a directory of the test, with the gatehouse
// program under test.
type Administrator struct {
	// Dir is the working directory of the commands.
	Dir string
	env []string
	// here replaces the names of machines and files on the page by the names in the test.
	here []*strings.Replacer
}

// NewAdministrator returns an administrator with an empty directory.
func NewAdministrator(t testing.TB) *Administrator {
	t.Helper()
	dir, bin := t.TempDir(), t.TempDir()
	if err := os.Symlink(Binary(t), filepath.Join(bin, "gatehouse")); err != nil {
		t.Fatal(err)
	}
	return &Administrator{Dir: dir, env: append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "HOME="+dir)}
}

// On returns an administrator of another machine. Each text of the page is followed by its replacement on
// that machine.
func (a *Administrator) On(oldnew ...string) *Administrator {
	other := *a
	other.here = append(slices.Clip(a.here), strings.NewReplacer(oldnew...))
	return &other
}

// Block returns the only block of a section that contains a text, with the replacements of On.
func (a *Administrator) Block(t testing.TB, section, with string) string {
	t.Helper()
	text := block(t, section, with)
	for _, r := range a.here {
		text = r.Replace(text)
	}
	return text
}

// path returns the PATH of commands.
func (a *Administrator) path() string {
	for _, v := range slices.Backward(a.env) {
		if path, ok := strings.CutPrefix(v, "PATH="); ok {
			return path
		}
	}
	return ""
}

// Set sets environment variables, each as NAME=VALUE.
func (a *Administrator) Set(variables ...string) *Administrator {
	a.env = append(slices.Clip(a.env), variables...)
	return a
}

// Of makes commands use the kubeconfig of the server.
func (a *Administrator) Of(s *Server) *Administrator {
	a.env = append(a.env, "KUBECONFIG="+s.Kubeconfig)
	return a
}

// Write writes a file to the directory.
func (a *Administrator) Write(t testing.TB, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(a.Dir, name), content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Follow runs the block of a section that contains a text, and returns its output.
func (a *Administrator) Follow(t testing.TB, section, with string) string {
	t.Helper()
	block := a.Block(t, section, with)
	cmd := exec.CommandContext(contextFor(t, strings.Count(block, "\n")+1), "sh", "-ec", block)
	cmd.Dir, cmd.Env = a.Dir, a.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, strings.Join(cmd.Args, " "), out)
	}
	return string(out)
}

// Begin runs a block that is one long-running command. stop sends the command SIGTERM, and fails the test
// unless the command then ends in order.
func (a *Administrator) Begin(t testing.TB, section, with string) (stop func()) {
	t.Helper()
	return a.Launch(t, strings.TrimSpace(a.Block(t, section, with)))
}

// Launch is Begin for a command that is not on a page.
func (a *Administrator) Launch(t testing.TB, command string) (stop func()) {
	t.Helper()
	// exec replaces the shell, so that the command receives the signal.
	cmd := exec.Command("sh", "-ec", "exec "+command)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = a.Dir, a.env, tied()
	output := &log{}
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	stop = sync.OnceFunc(func() {
		t.Helper()
		if t.Failed() {
			t.Logf("%s\n%s", command, output.excerpt())
		}
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case err := <-ended:
			// etcd re-raises the signal to end.
			var exit *exec.ExitError
			if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGTERM {
				err = nil
			}
			if err != nil {
				t.Errorf("%s: %v\n%s", command, err, output.excerpt())
			}
		case <-time.After(StopTimeout):
			_ = cmd.Process.Kill()
			<-ended
			t.Errorf("%s did not end within %s of SIGTERM\n%s", command, StopTimeout, output.excerpt())
		}
	})
	t.Cleanup(stop)
	return stop
}

// OperationsPages returns the text of the operations pages. Titles of sections are unique in them.
func OperationsPages(t testing.TB) string {
	t.Helper()
	var all strings.Builder
	for _, name := range []string{"one-server", "three-servers", "backup", "certificates", "monitoring", "troubleshooting", "install"} {
		page, err := os.ReadFile(filepath.Join(moduleRoot(), "docs", name+".md"))
		if err != nil {
			t.Fatal(err)
		}
		all.Write(page)
	}
	return all.String()
}

// block returns the only block of a section that contains a text: consecutive lines indented by four spaces.
func block(t testing.TB, section, with string) string {
	t.Helper()
	_, rest, ok := strings.Cut(OperationsPages(t), "\n## "+section+"\n")
	if !ok {
		t.Fatalf("there is no section %q", section)
	}
	text, _, _ := strings.Cut(rest, "\n## ")
	var found []string
	for part := range strings.SplitSeq(text, "\n\n") {
		if strings.HasPrefix(part, "    ") && strings.Contains(part, with) {
			found = append(found, strings.ReplaceAll("\n"+part, "\n    ", "\n"))
		}
	}
	if len(found) != 1 {
		t.Fatalf("section %q has %d blocks with %q", section, len(found), with)
	}
	return found[0]
}
