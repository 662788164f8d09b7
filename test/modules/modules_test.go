package modules

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// The modules pass their tests with the versions in their go.mod: gatehousetest with the client-go that it
// requires of operators, the others with the client-go of the server.
func TestModules(t *testing.T) {
	program := harness.Binary(t)
	all := speed.IsLong()
	for module, client := range map[string]string{
		"gatehousetest":          `^v0\.35\.`,
		"examples/openshift":     `^v0\.37\.`,
		"internal/release/chart": `^v0\.37\.`,
	} {
		// By default, run only the examples of the module that operators import.
		tests := "-run=^TestExample"
		if all {
			tests = "-run=."
		} else if module != "gatehousetest" {
			continue
		}
		t.Run(module, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join("..", "..", module)
			read(t, dir)
			read(t, filepath.Join("..", "..", "deploy", "agent"))
			in := func(args ...string) string {
				t.Helper()
				cmd := exec.CommandContext(t.Context(), "go", args...)
				cmd.Dir = dir
				cmd.Env = append(cmd.Environ(), "GOWORK=off", "GATEHOUSE_BINARY="+program)
				// With an empty module cache, Go reports each download on standard error.
				var diagnostics strings.Builder
				cmd.Stderr = &diagnostics
				out, err := cmd.Output()
				if err != nil {
					t.Fatalf("%s in %s: %v\n%s%s", cmd, module, err, out, diagnostics.String())
				}
				return string(out)
			}
			if got := in("list", "-m", "-f", "{{.Version}}", "k8s.io/client-go"); !regexp.MustCompile(client).MatchString(got) {
				t.Errorf("the version of client-go is %s, want %s", got, client)
			}
			if out := in("test", "-count=1", "-timeout=60m", tests, "./..."); !regexp.MustCompile(`^ok\s`).MatchString(out) || strings.Contains(out, "[no test") {
				t.Errorf("no test ran:\n%s", out)
			}
		})
	}
}

// read reads the files of a module, so that Go reruns this test when one of them has changed.
func read(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			_, err = os.ReadFile(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
