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
		s.add("idle", "param", onSame, peer.KubeAPIServer, float64(i))
		s.add("idle", "param", escaped, peer.KubeAPIServer, float64(i%4/3*100))
	}
	s.add("idle", "param", onSame, peer.Gatehouse, 0)
	var b strings.Builder
	s.print(&b, []string{"param"}, []peer.Kind{peer.KubeAPIServer, peer.Gatehouse})
	want := `| | kube-apiserver, median | 99th percentile | gatehouse, median | 99th percentile |
|---|---|---|---|---|
| param: the write, idle (ms) | - | - | - | - |
| param: in force on the same server, idle (ms) | **100.0** | 198.0 | **0.0** | 0.0 |
| param: in force on another server, idle (ms) | - | - | - | - |
| param: escaped on the same server, idle (%) | **25.0** of 200 | | - | - |
`
	if got, _, _ := strings.Cut(b.String(), "| param: the write, under load"); got != want {
		t.Errorf("table (-want +got):\n%s", cmp.Diff(want, got))
	}
}
