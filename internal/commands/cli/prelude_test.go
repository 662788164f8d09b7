package cli

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// The prelude must run before the packages that it makes cheaper.
func TestThePreludeComesBeforeKubernetes(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-test.run=^$")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var order []string
	for line := range strings.Lines(string(out)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "init" {
			order = append(order, fields[1])
		}
	}
	place := func(pkg string) int {
		for i, p := range order {
			if strings.HasPrefix(p, pkg) {
				return i
			}
		}
		t.Fatalf("%s is not among %d packages", pkg, len(order))
		return 0
	}
	if place("github.com/gatehouse-dev/gatehouse/internal/kit/program") > len(order)/4 {
		t.Error("help that is known in advance comes after a quarter of all packages")
	}
	prelude := place("github.com/gatehouse-dev/gatehouse/internal/kit/prelude")
	for _, later := range []string{"k8s.io/client-go/kubernetes/scheme", "k8s.io/kubernetes/pkg/api/legacyscheme", "k8s.io/kubectl/pkg/cmd/"} {
		if place(later) < prelude {
			t.Errorf("%s is initialized before the prelude", order[place(later)])
		}
	}
}
