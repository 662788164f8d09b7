package cli

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/etcd/server/v3/etcdmain"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/serving"
	"github.com/gatehouse-dev/gatehouse/internal/kit/program"
)

// askEtcd makes TestAnswersOfEtcd behave as etcd.
const askEtcd = "GATEHOUSE_TEST_ASK_ETCD"

// The prepared output of --help equals the output of the programs.
func TestHelpKnownInAdvanceIsThatOfThePrograms(t *testing.T) {
	// No default may depend on the machine.
	t.Setenv("GATEHOUSE_DATA_DIR", "/somewhere")
	t.Setenv("HOME", t.TempDir())
	var stdout, stderr strings.Builder
	streams := command.Streams{In: strings.NewReader(""), Out: &stdout, Err: &stderr}
	if code := command.Execute(context.Background(), serving.NewKubeAPIServer, []string{"--help"}, streams); code != command.ExitOK {
		t.Errorf("exit code %d", code)
	}
	checkHelp(t, program.KubeAPIServer, stdout.String(), stderr.String())

	cmd := exec.Command(os.Args[0], "-test.run=^TestAnswersOfEtcd$")
	cmd.Env = append(os.Environ(), askEtcd+"=1")
	stdout.Reset()
	stderr.Reset()
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	checkHelp(t, program.Etcd, stdout.String(), stderr.String())
}

// TestAnswersOfEtcd is the process that the test above starts.
func TestAnswersOfEtcd(t *testing.T) {
	if os.Getenv(askEtcd) == "" {
		t.Skip("it is part of TestHelpKnownInAdvanceIsThatOfThePrograms")
	}
	etcdmain.Main([]string{program.Etcd, "--help"})
}

// checkHelp compares the output of a program with the prepared output.
func checkHelp(t *testing.T, name, stdout, stderr string) {
	t.Helper()
	if *update {
		for file, text := range map[string]string{name + ".txt": stdout, name + "-stderr.txt": stderr} {
			if text == "" {
				continue
			}
			if err := os.WriteFile(filepath.Join("..", "..", "kit", "program", "help", file), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return
	}
	out, err, ok := program.Help(name, []string{"--help"})
	if !ok || out != stdout || err != stderr {
		t.Errorf("internal/kit/program/help is not up to date; run go test ./internal/commands/cli -update (-known +printed):\n%s%s", cmp.Diff(out, stdout), cmp.Diff(err, stderr))
	}
}
