package operations

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// administrator runs the commands of the page in a directory of the test, where
// gatehouse is the program under test.
type administrator struct {
	dir string
	env []string
}

func newAdministrator(t *testing.T) *administrator {
	t.Helper()
	dir, bin := t.TempDir(), t.TempDir()
	if err := os.Symlink(harness.Binary(t), filepath.Join(bin, "gatehouse")); err != nil {
		t.Fatal(err)
	}
	return &administrator{dir: dir, env: append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "HOME="+dir)}
}

// of makes the server the one that commands are about.
func (a *administrator) of(s *harness.Server) *administrator {
	a.env = append(a.env, "KUBECONFIG="+s.Kubeconfig)
	return a
}

func (a *administrator) write(t *testing.T, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(a.dir, name), content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// follow runs the block of commands of a section that has the given text, and
// returns what it prints.
func (a *administrator) follow(t *testing.T, section, with string) string {
	t.Helper()
	cmd := exec.CommandContext(harness.Context(t), "sh", "-ec", block(t, section, with))
	cmd.Dir, cmd.Env = a.dir, a.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, strings.Join(cmd.Args, " "), out)
	}
	return string(out)
}

// block returns the only block of a section with the given text: lines that are
// indented by four spaces, without an empty line.
func block(t *testing.T, section, with string) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "operations.md"))
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
