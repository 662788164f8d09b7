package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gatehouse-dev/gatehouse/bench/internal/peer"
)

func TestTableHasMediansAndSpread(t *testing.T) {
	var r results
	for _, v := range []float64{300, 100, 200} {
		r.add("creates", "/s", peer.KubeAPIServer, v)
	}
	for _, v := range []float64{4, 2} {
		r.add("creates", "/s", peer.Gatehouse, v)
	}
	var b strings.Builder
	r.print(&b, []peer.Kind{peer.KubeAPIServer, peer.Gatehouse, peer.GatehouseEmbedded})
	want := `| | kube-apiserver | gatehouse | gatehouse, etcd embedded |
|---|---|---|---|
| creates (/s) | **200** (100 to 300) | **3.00** (2.00 to 4.00) | - |
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}
