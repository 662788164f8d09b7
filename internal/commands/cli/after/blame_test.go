package after

import (
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/readers/blame"
)

// The table of long values fits the terminal and keeps the values complete.
func TestBlameFitsTheTerminal(t *testing.T) {
	b := &blamed{Blame: blame.Blame{Object: "pod/web", Changes: []blame.Change{{
		Path: "/spec/containers/-", Op: "add", Field: "spec.containers[name=sidecar]", Value: json.RawMessage(`{"image":"registry.example.com/mesh/proxy:1.2.3","name":"sidecar","resources":{}}`),
		By: "podpolicy/sidecar.podpolicy.example.com", ByKind: trace.ByWebhook, Now: "same", Operation: "CREATE", User: "system:serviceaccount:kube-system:replicaset-controller", Trace: "01kb3v9d3zq0x8w6y5t4r2e1aa",
	}}}}
	for width, lines := range map[string]int{"80": 0, "120": 0, "": 2} {
		t.Setenv("COLUMNS", width)
		var out strings.Builder
		if err := b.print(&out, io.Discard); err != nil {
			t.Fatal(err)
		}
		most, _ := strconv.Atoi(width)
		for line := range strings.Lines(out.String()) {
			if n := len(strings.TrimSuffix(line, "\n")); most > 0 && n > most {
				t.Errorf("%d columns in %s: %s", n, width, line)
			}
		}
		if !strings.Contains(out.String(), b.Changes[0].Trace) || !strings.Contains(out.String(), "replicaset-controller") {
			t.Errorf("in %s columns something is lost:\n%s", width, out.String())
		}
		if n := strings.Count(out.String(), "\n"); lines > 0 && n != lines {
			t.Errorf("%d lines where there is no terminal:\n%s", n, out.String())
		}
	}
}
