package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
)

func TestTableHasMediansAndPercentiles(t *testing.T) {
	s := samples{}
	for i := range 200 {
		s.add("idle", onSame, peer.KubeAPIServer, float64(i))
		s.add("idle", escaped, peer.KubeAPIServer, float64(i%4/3*100))
	}
	s.add("idle", onSame, peer.Gatehouse, 0)
	var b strings.Builder
	s.print(&b, []peer.Kind{peer.KubeAPIServer, peer.Gatehouse})
	want := `| | kube-apiserver, median | 99th percentile | gatehouse, median | 99th percentile |
|---|---|---|---|---|
| the registration's write, idle (ms) | - | - | - | - |
| in force on the same server, idle (ms) | **100.0** | 198.0 | **0.0** | 0.0 |
| in force on another server, idle (ms) | - | - | - | - |
| escaped on the same server, idle (%) | **25.0** of 200 | | - | - |
`
	if got, _, _ := strings.Cut(b.String(), "| the registration's write, under load"); got != want {
		t.Errorf("table (-want +got):\n%s", cmp.Diff(want, got))
	}
}
