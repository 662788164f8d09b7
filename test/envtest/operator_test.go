package envtest

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// The suite of examples/operator, a typical use of envtest, passes.
func TestTheSuiteOfAnOperatorPasses(t *testing.T) {
	speed.Long(t)
	cmd := exec.Command("go", "test", "-count=1", "-v", "./examples/operator")
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "KUBEBUILDER_ASSETS="+assets(t), "TMPDIR="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestOperator") {
		t.Errorf("%v\n%s", err, out)
	}
}
