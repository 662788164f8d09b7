package report

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTableHasMediansAndSpread(t *testing.T) {
	var r Table
	for _, v := range []float64{300, 100, 200} {
		r.Add("creates", "/s", "kube-apiserver", v)
	}
	for _, v := range []float64{4, 2} {
		r.Add("creates", "/s", "gatehouse", v)
	}
	var b strings.Builder
	r.Print(&b, []string{"kube-apiserver", "gatehouse", "gatehouse, etcd embedded"})
	want := `| | kube-apiserver | gatehouse | gatehouse, etcd embedded |
|---|---|---|---|
| creates (/s) | **200** (100 to 300) | **3.00** (2.00 to 4.00) | - |
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	if got, ok := r.Median("creates", "gatehouse"); got != 3 || !ok {
		t.Errorf("the median is %g, %v", got, ok)
	}
	if _, ok := r.Median("creates", "gatehouse, etcd embedded"); ok {
		t.Error("there is a median of no values")
	}
}
