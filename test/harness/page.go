package harness

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Administrator runs the commands of docs/operations.md in a directory of the test, where
// gatehouse is the program under test.
type Administrator struct {
	// Dir is where the commands run.
	Dir string
	env []string
}

// NewAdministrator makes one with an empty directory.
func NewAdministrator(t testing.TB) *Administrator {
	t.Helper()
	dir, bin := t.TempDir(), t.TempDir()
	if err := os.Symlink(Binary(t), filepath.Join(bin, "gatehouse")); err != nil {
		t.Fatal(err)
	}
	return &Administrator{Dir: dir, env: append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "HOME="+dir)}
}

// Of makes the server the one that commands are about.
func (a *Administrator) Of(s *Server) *Administrator {
	a.env = append(a.env, "KUBECONFIG="+s.Kubeconfig)
	return a
}

// Write puts a file there.
func (a *Administrator) Write(t testing.TB, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(a.Dir, name), content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Follow runs the block of commands of a section that has the given text, and
// returns what it prints.
func (a *Administrator) Follow(t testing.TB, section, with string) string {
	t.Helper()
	cmd := exec.CommandContext(Context(t), "sh", "-ec", block(t, section, with))
	cmd.Dir, cmd.Env = a.Dir, a.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, strings.Join(cmd.Args, " "), out)
	}
	return string(out)
}

// block returns the only block of a section with the given text: lines that are
// indented by four spaces, without an empty line.
func block(t testing.TB, section, with string) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(moduleRoot(), "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(page), "\n## "+section+"\n")
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
