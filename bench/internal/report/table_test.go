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
	b.Reset()
	r.Ratio = true
	r.Reserve("10 things: outcome")
	r.Say("10 things: outcome", "gatehouse", Passed)
	r.Reserve("20 things: outcome")
	r.Add("one value", "", "kube-apiserver", 2)
	r.Add("nothing", "ms", "kube-apiserver", 0)
	r.Add("nothing", "ms", "gatehouse", 0)
	r.Say("20 things: outcome", "gatehouse", Passed)
	r.Say("20 things: outcome", "kube-apiserver", "failed: it is full")
	r.Say("20 things: outcome", "kube-apiserver", "failed: it is full")
	r.Print(&b, []string{"kube-apiserver", "gatehouse"})
	want = `| | kube-apiserver | gatehouse | ratio |
|---|---|---|---|
| creates (/s) | **200** (100 to 300) | **3.00** (2.00 to 4.00) | 0.01x |
| 20 things: outcome | failed: it is full | passed |  |
| one value | **2.00** | - |  |
| nothing (ms) | **0.00** | **0.00** |  |
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("table with ratios (-want +got):\n%s", diff)
	}
	if got, ok := r.Median("creates", "gatehouse"); got != 3 || !ok {
		t.Errorf("the median is %g, %v", got, ok)
	}
	if _, ok := r.Median("creates", "gatehouse, etcd embedded"); ok {
		t.Error("there is a median of no values")
	}
}

// A table of seven rounds or more prints quartiles, and the median of the ratios of the rounds.
func TestManyRoundsHaveQuartiles(t *testing.T) {
	r := Table{Ratio: true}
	for i, v := range []float64{100, 900, 300, 400, 500, 600, 700} {
		r.Add("creates", "/s", "a", v)
		r.Add("creates", "/s", "b", v*float64(i+1))
	}
	var b strings.Builder
	r.Print(&b, []string{"a", "b"})
	want := "| creates (/s) | **500** (300 to 700) | **1800** (900 to 3600) | 4.00x (2.00 to 6.00) |\n"
	if got := b.String(); !strings.HasSuffix(got, want) {
		t.Errorf("table:\n%s\nwant its last line:\n%s", got, want)
	}
}
