package suite

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The page shows the whole file, and each decision in its colour (S24.15).
func TestThePageShowsTheSource(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, []byte("# <a comment>\nexpression: ä && b\nother: |\n  c ||\n  d\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &Coverage{Items: []*Covered{
		{Owner: "P p", Field: "expression", File: file, Line: 2, column: 1, Text: "ä && b", State: "both", hits: 3, Branches: []*Branch{
			{Text: "ä", True: 1, False: 2, Line: 2, begin: 0}, {Text: "b", True: 1, Line: 2, begin: 6}, {Text: "ä && b", True: 1, False: 2, Line: 2, begin: 0},
		}},
		{Owner: "P p", Field: "other", File: file, Line: 3, column: 1, Text: "c ||\nd\n", State: "never"},
	}}
	var b strings.Builder
	if err := c.HTML(&b); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	for _, want := range []string{
		"&lt;a comment&gt;", `expression: <span class="all" title="ä: 1 times true, 2 times false; ä &amp;&amp; b: 1 times true, 2 times false">ä &amp;&amp; </span>` +
			`<span class="some" title="b: 1 times true, 0 times false">b</span>`,
		`<span class="none" title="never reached">c ||</span>`, `  <span class="none" title="never reached">d</span>`,
		`<span class="n some" title="expression of P p: both">2</span>`, `<span class="n none" title="other of P p: never">3</span><span class="t">other: |`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not have %s:\n%s", want, page)
		}
	}
	if strings.Contains(page, "<script") {
		t.Error("the page has a script")
	}
}

// LCOV has a line for each item and for each line of a decision, and both ways of each decision
// (S24.15).
func TestLCOVHasLinesAndBranches(t *testing.T) {
	c := &Coverage{Items: []*Covered{
		{File: "a.yaml", Line: 4, hits: 3, Branches: []*Branch{{True: 1, False: 2, Line: 4}, {True: 1, Line: 5}}},
		{File: "a.yaml", Line: 9},
		{File: "b.yaml", Line: 2, hits: 1},
	}}
	var b strings.Builder
	if err := c.LCOV(&b); err != nil {
		t.Fatal(err)
	}
	want := `TN:gatehouse test
SF:a.yaml
BRDA:4,0,0,1
BRDA:4,0,1,2
BRDA:5,0,2,1
BRDA:5,0,3,0
BRF:4
BRH:3
DA:4,3
DA:5,1
DA:9,0
LF:3
LH:2
end_of_record
TN:gatehouse test
SF:b.yaml
BRF:0
BRH:0
DA:2,1
LF:1
LH:1
end_of_record
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("LCOV (-want +got):\n%s", diff)
	}
}
