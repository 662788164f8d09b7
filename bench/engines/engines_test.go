package engines

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// output runs a command and returns its standard output.
func output(t *testing.T, cmd *exec.Cmd) []byte {
	t.Helper()
	var errors strings.Builder
	cmd.Stderr = &errors
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(cmd.Args, " "), err, out, errors.String())
	}
	return out
}

// The commands of docs/suites.md build the engines, and the engines evaluate suites in their own formats.
func TestEnginesJudgeTheirSuites(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles Kyverno and Gatekeeper")
	}
	page, err := os.ReadFile("../../docs/suites.md")
	if err != nil {
		t.Fatal(err)
	}
	gatehouse := filepath.Join(t.TempDir(), "gatehouse")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", gatehouse, "./cmd/gatehouse")
	build.Dir = "../.."
	output(t, build)
	env := append(os.Environ(), "GOFLAGS=")
	for _, name := range []string{"GOCACHE", "GOMODCACHE"} {
		env = append(env, name+"="+strings.TrimSpace(string(output(t, exec.CommandContext(t.Context(), "go", "env", name)))))
	}
	for engine, tests := range map[string]int{"gatekeeper": 3, "kyverno": 6} {
		t.Run(engine, func(t *testing.T) {
			home := t.TempDir()
			block := regexp.MustCompile("(?s)```sh\n# " + engine + "\n(.*?)```").FindSubmatch(page)
			if block == nil {
				t.Fatal("docs/suites.md does not say how to build it")
			}
			env := append(env, "HOME="+home, "XDG_CACHE_HOME=")
			commands := exec.CommandContext(t.Context(), "sh", "-e", "-c", string(block[1]))
			commands.Env, commands.Dir = env, home
			output(t, commands)
			test := exec.CommandContext(t.Context(), gatehouse, "test", "testdata/"+engine, "--engine", engine, "-o", "json")
			test.Env = env
			var report struct {
				Summary struct{ Tests, Passed int }
			}
			out := output(t, test)
			if err := json.Unmarshal(out, &report); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if s := report.Summary; s.Tests != tests || s.Passed != tests {
				t.Errorf("%d of %d tests passed, want %d\n%s", s.Passed, s.Tests, tests, out)
			}
		})
	}
}
