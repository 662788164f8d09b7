package serving

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// orphanVariable makes the test process the server of a script. Its value is a directory, where the server
// writes a file when it runs.
const orphanVariable = "GATEHOUSE_TEST_ORPHAN"

// TestOrphan is the server of TestServersForTestsSayWhyTheyEnd rather than a test.
func TestOrphan(t *testing.T) {
	dir := os.Getenv(orphanVariable)
	if dir == "" {
		t.Skip("runs in a process of its own")
	}
	// The main function of the tests keeps the log in memory.
	klog.LogToStderr(true)
	if err := os.WriteFile(filepath.Join(dir, "runs"), []byte(strconv.Itoa(startedBy)), 0o600); err != nil {
		t.Fatal(err)
	}
	if orphaned(harness.Context(t)) {
		fmt.Fprintln(os.Stderr, "the server ends")
	}
}

// A server of a test library that ends because the script that started it has ended names the reason, and the
// variable that keeps it running, on standard error.
func TestServersForTestsSayWhyTheyEnd(t *testing.T) {
	dir := t.TempDir()
	script := exec.CommandContext(harness.Context(t), "/bin/sh", "-c", `"$0" -test.run='^TestOrphan$' >out 2>&1 &
until [ -s runs ]; do sleep 0.1; done`, os.Args[0])
	script.Dir, script.Env = dir, append(os.Environ(), orphanVariable+"="+dir, endWithParentVariable+"=", endWithLockVariable+"=")
	if out, err := script.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	parent, err := os.ReadFile(filepath.Join(dir, "runs"))
	if err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the server has ended", func() error {
		out, err := os.ReadFile(filepath.Join(dir, "out"))
		if err == nil && !strings.Contains(string(out), "the server ends") {
			err = fmt.Errorf("it says %q", out)
		}
		return err
	})
	out, _ := os.ReadFile(filepath.Join(dir, "out"))
	for _, want := range []string{"Process " + string(parent) + ",", "GATEHOUSE_END_WITH_PARENT=false"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("standard error has no %q:\n%s", want, out)
		}
	}
}
