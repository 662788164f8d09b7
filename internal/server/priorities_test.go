package server_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/internal/server/api/aggregation"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/priorities"
)

// S22.3: the priorities equal kube-apiserver's for every group version that it has.
func TestPrioritiesAreUpstreams(t *testing.T) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes").Output()
	if err != nil {
		t.Fatal(err)
	}
	// The second file wins, as in upstream.
	upstream := map[schema.GroupVersion]aggregation.Priority{}
	row := regexp.MustCompile(`\{Group: "([^"]*)", Version: "([^"]+)"\}:\s*\{Group: (\d+), Version: (\d+)\}`)
	for _, file := range []string{"pkg/controlplane/apiserver/aggregator.go", "cmd/kube-apiserver/app/aggregator.go"} {
		source, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), file))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range row.FindAllStringSubmatch(string(source), -1) {
			group, _ := strconv.Atoi(m[3])
			version, _ := strconv.Atoi(m[4])
			upstream[schema.GroupVersion{Group: m[1], Version: m[2]}] = aggregation.Priority{Group: int32(group), Version: int32(version)}
		}
	}
	if len(upstream) < 40 {
		t.Fatalf("found %d priorities of upstream", len(upstream))
	}
	for _, gv := range []schema.GroupVersion{
		{Group: "policy", Version: "v1beta1"}, {Group: "autoscaling", Version: "v2beta1"}, {Group: "autoscaling", Version: "v2beta2"},
		{Group: "batch", Version: "v2alpha1"}, {Group: "batch", Version: "v1beta1"}, {Group: "node.k8s.io", Version: "v1beta1"}, {Group: "node.k8s.io", Version: "v1alpha1"},
		{Group: "scheduling.k8s.io", Version: "v1beta1"},
	} {
		// No server has these any more.
		delete(upstream, gv)
	}
	for gv, want := range upstream {
		if got := priorities.Of(gv); got != want {
			t.Errorf("%s: %+v, want %+v", gv, got, want)
		}
	}
}
