package aggregation

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// S22.3: the priorities equal kube-apiserver's for every group version that it has.
func TestPrioritiesAreUpstreams(t *testing.T) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes").Output()
	if err != nil {
		t.Fatal(err)
	}
	// The second file wins, as in upstream.
	upstream := map[schema.GroupVersion]Priority{}
	row := regexp.MustCompile(`\{Group: "([^"]*)", Version: "([^"]+)"\}:\s*\{Group: (\d+), Version: (\d+)\}`)
	for _, file := range []string{"pkg/controlplane/apiserver/aggregator.go", "cmd/kube-apiserver/app/aggregator.go"} {
		source, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), file))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range row.FindAllStringSubmatch(string(source), -1) {
			group, _ := strconv.Atoi(m[3])
			version, _ := strconv.Atoi(m[4])
			upstream[schema.GroupVersion{Group: m[1], Version: m[2]}] = Priority{Group: int32(group), Version: int32(version)}
		}
	}
	if len(upstream) < 40 {
		t.Fatalf("found %d priorities of upstream", len(upstream))
	}
	for gv, got := range priorities {
		if want, ok := upstream[gv]; ok && got != want {
			t.Errorf("%s: %+v, want %+v", gv, got, want)
		}
	}
	for _, gv := range []schema.GroupVersion{{Version: "v1"}, {Group: "apps", Version: "v1"}, {Group: "resource.k8s.io", Version: "v1"}} {
		if PriorityOf(gv) != upstream[gv] {
			t.Errorf("%s: %+v, want %+v", gv, PriorityOf(gv), upstream[gv])
		}
	}
}
