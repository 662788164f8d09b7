package cli

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// execution runs a command line of gatehouse. It returns standard output, standard error and the exit code.
func execution(ctx context.Context, in string, args ...string) (out, problems string, code int) {
	var o, e bytes.Buffer
	streams := command.Streams{In: strings.NewReader(in), Out: &o, Err: &e}
	code = command.Execute(ctx, newRoot, args, streams)
	return o.String(), e.String(), code
}

// measured matches durations and times, which differ in each run, and the number of rules of lint.
var measured = regexp.MustCompile(`("(?:(?:start|check|world|test)S|s|millis)econds": | time="|, by )[0-9.e-]+|\d+\.\d ms`)

// Each case has files, command lines and their output. The first file has the commands and, after them, standard
// input. The last file has the output and the exit codes. $DIR is the directory of the files. The formats are tested
// in package report and the decisions in package predict/check, so the ordinary run tries some of the cases.
func TestCheckScenarios(t *testing.T) {
	const dir = "testdata/check"
	formats := []string{"github", "gitlab", "junit", "sarif"}
	others := cases(t, dir, formats...)
	scenarios(t, dir, append(speed.Some(t, few(1, formats), formats), speed.Some(t, few(9, others), others)...))
}

// Configurations of public bug reports give the findings, rejections and first tests that would have helped. The
// ordinary run tries some of them.
func TestIncidents(t *testing.T) {
	const dir = "testdata/incidents"
	all := cases(t, dir)
	scenarios(t, dir, speed.Some(t, few(8, all), all))
}

// few returns n, or with -update the number of all cases.
func few(n int, all []string) int {
	if *update {
		return len(all)
	}
	return n
}

// cases returns the names of the cases of a directory, without the given ones.
func cases(t *testing.T, dir string, without ...string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatal("no cases", err)
	}
	var names []string
	for _, file := range files {
		if name := strings.TrimSuffix(filepath.Base(file), ".txtar"); !slices.Contains(without, name) {
			names = append(names, name)
		}
	}
	return names
}

func scenarios(t *testing.T, dir string, names []string) {
	for _, name := range names {
		file := filepath.Join(dir, name+".txtar")
		t.Run(name, func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			path, err := filepath.Abs(file)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			t.Chdir(dir)
			n := len(archive.Files) - 1
			if archive.Files[0].Name != "command" || archive.Files[n].Name != "prints" {
				t.Fatal("a case begins with the file command and ends with prints")
			}
			for _, f := range archive.Files[1:n] {
				if err := os.MkdirAll(filepath.Dir(f.Name), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(f.Name, bytes.ReplaceAll(f.Data, []byte("$DIR"), []byte(dir)), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			in := string(archive.Files[0].Data)
			var commands []string
			for strings.HasPrefix(in, "gatehouse ") {
				var line string
				line, in, _ = strings.Cut(in, "\n")
				commands = append(commands, line)
			}
			if len(commands) == 0 {
				t.Fatalf("the command is %q", in)
			}
			got := ""
			for _, line := range commands {
				out, problems, code := execution(t.Context(), in, strings.Fields(line)[1:]...)
				got += measured.ReplaceAllString(out, "${1}0") + problems + fmt.Sprintf("exit %d\n", code)
			}
			got = strings.ReplaceAll(got, dir, "$DIR")
			if *update {
				archive.Files[n].Data = []byte(got)
				if err := os.WriteFile(path, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(archive.Files[n].Data), got); diff != "" {
				t.Errorf("%s prints (-want +got):\n%s", strings.Join(commands, "; "), diff)
			}
		})
	}
}

// An invalid command line exits with 2 and suggests a correction.
func TestCommandLinesThatMeanNothing(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := write("good.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n")
	for _, tc := range []struct {
		args string
		says string
	}{
		{"check", "name a file or a directory"},
		{"check " + filepath.Join(dir, "missing.yaml"), "missing.yaml: no such file or directory"},
		{"check " + write("values.yaml", "a: b\n"), "no Kubernetes objects were found"},
		{"check - -", "standard input can be read once only"},
		{"check --as-group a " + good, "--as-group needs --as"},
		{"check --service-address a/b=c:1 " + good, "--service-address needs --call"},
		{"check --diff -o sarif " + good, "--diff needs --output text, json or html"},
		{"check -o xml " + good, `--output "xml" is not one of`},
		{"check --snapshot a --from-cluster b " + good, "exclude each other"},
		{"check --snapshot " + filepath.Join(dir, "none") + " " + good, "no such file or directory"},
		{"check --snapshot " + good + " " + good, `not a snapshot of a cluster, but of kind "ConfigMap"`},
		{"check --snapshot " + write("later.yaml", "apiVersion: gatehouse.dev/v3\nkind: ClusterSnapshot\n") + " " + good, `a snapshot of version "gatehouse.dev/v3", made by another release of gatehouse`},
		{"check --snapshot " + write("cut.yaml", "apiVersion: gatehouse.dev/v1alpha1\nkind: ClusterSnapshot\nitems: [{kind: A}]\n") + " " + good, "items[0]: apiVersion, kind and metadata.name are needed"},
		{"check --snapshot " + write("wrong.yaml", "a: [\n") + " " + good, "wrong.yaml: "},
		{"check --from-cluster " + filepath.Join(dir, "none") + " " + good, "--from-cluster: "},
		{"replay b --with a --fail-on always", `--fail-on "always" is not one of rejected, changed, any`},
		{"wait-in-force", "name one registration"},
		{"wait-in-force validating/x --timeout 0s", "--timeout 0s must be more than 0"},
		{"snapshot", "name the file to write"},
		{"snapshot -o x extra", `unexpected argument "extra"`},
	} {
		out, problems, code := execution(t.Context(), "", strings.Fields(tc.args)...)
		if code != command.ExitUsage || !strings.Contains(problems, tc.says) || out != "" {
			t.Errorf("%s: exit %d, %q, want %q", tc.args, code, problems, tc.says)
		}
	}
}

// A cluster that does not respond is an error rather than a finding.
func TestCheckAgainstAClusterThatDoesNotAnswer(t *testing.T) {
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	text := "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\ncontexts: [{name: x, context: {cluster: c}}]\ncurrent-context: x\n"
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, problems, code := execution(t.Context(), "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n", "check", "-", "--from-cluster", kubeconfig)
	if code != command.ExitError || !strings.Contains(problems, "reading the cluster: ") {
		t.Errorf("exit %d, %q", code, problems)
	}
}

// An interrupted check ends soon and leaves no file behind.
func TestCheckEndsWhenItIsInterrupted(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, problems, code := execution(ctx, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n", "check", "-")
	// On a fast machine the check may end before the interrupt.
	if code == command.ExitUsage || code == command.ExitError && problems == "" {
		t.Errorf("exit %d, %q", code, problems)
	}
	left, err := os.ReadDir(temporary)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
