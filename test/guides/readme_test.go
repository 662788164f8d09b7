package guides

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// TestTheQuickStart runs the first commands of README.md on a server of the test, and compares the output.
func TestTheQuickStart(t *testing.T) {
	t.Parallel()
	d := readDocument(t, "../README.md")
	if err := os.Symlink(harness.Binary(t), filepath.Join(d.dir, "gatehouse")); err != nil {
		t.Fatal(err)
	}
	s := harness.Sole(t)
	d.env = []string{"HOME=" + t.TempDir(), "KUBECONFIG=" + s.Kubeconfig, "PATH=" + d.dir + string(os.PathListSeparator) + os.Getenv("PATH")}
	lines := strings.Split(d.block("gatehouse serve"), "\n")
	if len(lines) != 5 || lines[0] != "gatehouse serve > server.log &" {
		t.Fatalf("the quick start is %q", lines)
	}
	d.must(lines[1])
	d.must(lines[2])
	rejection, err := d.sh(lines[3])
	const message = `Error from server (Forbidden): pods "web" is forbidden: violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)`
	want(t, lines[3]+" fails", err != nil, true)
	want(t, lines[3], strings.TrimSpace(rejection), message)
	want(t, "README.md has the rejection", strings.Contains(d.text, message), true)
	list, err := d.sh(lines[4])
	id := regexp.MustCompile(`(?m)^([0-9a-f]{16}) +CREATE +pods web +Denied`).FindStringSubmatch(list)
	if err != nil || id == nil {
		t.Fatalf("%s: %v\n%s", lines[4], err, list)
	}
	out, err := d.sh("gatehouse trace " + id[1])
	want(t, "the trace names the plugin", err == nil && strings.Contains(out, "validating pass, PodSecurity: rejected"), true)
}
