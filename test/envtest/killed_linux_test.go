package envtest

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// victimVariable is the environment variable that makes the test process a suite which starts an environment
// and waits to be killed; its value is the folder of the programs.
const victimVariable = "GATEHOUSE_TEST_VICTIM"

// TestVictim is the suite that TestKilledSuitesLeaveNothing kills; it is skipped otherwise.
func TestVictim(t *testing.T) {
	dir := os.Getenv(victimVariable)
	if dir == "" {
		t.Skip("runs in a process of its own")
	}
	e := &envtest.Environment{BinaryAssetsDirectory: dir}
	if _, err := e.Start(); err != nil {
		t.Fatal(err)
	}
	fmt.Println("the suite is running")
	select {}
}

// A killed suite leaves no process behind, and no files after another suite has run.
func TestKilledSuitesLeaveNothing(t *testing.T) {
	for _, tc := range speed.Some(t, 1, []struct {
		name string
		// first reports whether the programs are killed before the suite.
		first bool
	}{
		{"the suite is killed", false},
		{"everything is killed", true},
	}) {
		t.Run(tc.name, func(t *testing.T) {
			programs, temp := assets(t), t.TempDir()
			victim := exec.Command(os.Args[0], "-test.run=^TestVictim$")
			victim.Env = append(os.Environ(), victimVariable+"="+programs, "TMPDIR="+temp)
			victim.Stderr = os.Stderr
			out, err := victim.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := victim.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				_ = victim.Process.Kill()
				_ = victim.Wait()
			}()
			lines := bufio.NewScanner(out)
			for lines.Scan() && lines.Text() != "the suite is running" {
			}
			servers := children(t, victim.Process.Pid)
			if len(servers) != 2 {
				t.Fatalf("the suite runs the processes %v, want two", servers)
			}
			if tc.first {
				for _, pid := range servers {
					if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := victim.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = victim.Wait()
			for _, pid := range servers {
				harness.Eventually(t, "process "+strconv.Itoa(pid)+" has ended", func() error {
					if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
						return fmt.Errorf("it is still there: %v", err)
					}
					return nil
				})
			}
			t.Setenv("TMPDIR", temp)
			e := &envtest.Environment{BinaryAssetsDirectory: programs}
			if _, err := e.Start(); err != nil {
				t.Fatal(err)
			}
			if err := e.Stop(); err != nil {
				t.Fatal(err)
			}
			left, err := os.ReadDir(temp)
			if err != nil {
				t.Fatal(err)
			}
			for _, entry := range left {
				// envtest creates these directories for webhooks, and does not pass them to a program.
				if !strings.HasPrefix(entry.Name(), "envtest-serving-certs-") {
					t.Errorf("%s is left behind", entry.Name())
				}
			}
		})
	}
}

// children returns the child processes of a process.
func children(t *testing.T, parent int) []int {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		// The name of the program is in parentheses and may contain any characters.
		fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
		if fields[1] == strconv.Itoa(parent) && fields[0] != "Z" {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			pids = append(pids, pid)
		}
	}
	return pids
}
