package guides

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// TestTheQuickStart does what README.md says under that title, with the server and the
// example on other ports.
func TestTheQuickStart(t *testing.T) {
	t.Parallel()
	d := readDocument(t, "../README.md")
	for _, name := range []string{"gatehouse", "examples"} {
		target, err := filepath.Abs(filepath.Join("..", "..", name))
		if err != nil {
			t.Fatal(err)
		}
		if name == "gatehouse" {
			target = harness.Binary(t)
		}
		if err := os.Symlink(target, filepath.Join(d.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	d.env = []string{"HOME=" + t.TempDir(), "KUBECONFIG=", "GATEHOUSE_DATA_DIR="}
	if got := d.block("./gatehouse serve"); got != "./gatehouse serve" {
		t.Fatalf("the server is started with %q", got)
	}
	s := harness.StartOn(t, filepath.Join(d.dir, "gatehouse.data"))
	arguments := strings.Fields(d.block("go run ./examples/podpolicy", "gatehouse.data/admin.kubeconfig", s.Kubeconfig))
	harness.StartExample(t, "podpolicy", append(arguments[3:], "--port", "0")...)

	explain, apply, _ := strings.Cut(d.block("./gatehouse explain"), "\n")
	out, err := d.sh(explain)
	want(t, explain, err == nil && strings.Contains(out, "podpolicy/images.podpolicy.gatehouse.dev"), true)
	out, err = d.sh(apply)
	want(t, apply+": rejects one pod", err != nil && strings.Contains(out, `"images.podpolicy.gatehouse.dev" denied the request`), true)
	want(t, apply+": creates two pods", strings.Count(out, " created"), 2)

	trace, blame, _ := strings.Cut(d.block("./gatehouse trace"), "\n")
	out, err = d.sh(trace)
	want(t, trace, err == nil && strings.Contains(out, "Denied"), true)
	out, err = d.sh(blame)
	want(t, blame, err == nil && strings.Contains(out, "spec.containers[name=") && strings.Contains(out, "podpolicy/inject.podpolicy.gatehouse.dev"), true)
	if t.Failed() {
		t.Logf("the last command printed\n%s", out)
	}
}
