package suite

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	"github.com/google/go-cmp/cmp"

	"github.com/gatehouse-dev/gatehouse/internal/engine/expression"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
)

// The page shows the whole file, and each decision in its colour (S24.15).
func TestThePageShowsTheSource(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, []byte("# <a comment>\nexpression: ä && b\nother: |\n  c ||\n  d\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &Coverage{Items: []*Covered{
		{Kind: ofExpressions, Owner: "P p", Field: "expression", File: file, Line: 2, column: 1, Text: "ä && b", State: "both", hits: 3, Branches: []*Branch{
			{Text: "ä", True: 1, False: 2, Line: 2, begin: 0}, {Text: "b", True: 1, Line: 2, begin: 6}, {Text: "ä && b", True: 1, False: 2, Line: 2, begin: 0},
		}},
		{Kind: ofExpressions, Owner: "P p", Field: "other", File: file, Line: 3, column: 1, Text: "c ||\nd\n", State: "never"},
	}}
	var b strings.Builder
	if err := c.Document().HTML(&b); err != nil {
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

// LCOV has a line for each item and for each line of a decision, and both outcomes of each decision (S24.15).
func TestLCOVHasLinesAndBranches(t *testing.T) {
	c := &Coverage{Items: []*Covered{
		{File: "a.yaml", Line: 4, hits: 3, Branches: []*Branch{{True: 1, False: 2, Line: 4}, {True: 1, Line: 5}}, Cases: []*Case{{Line: 4, Count: 2}}},
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
BRDA:4,0,4,2
BRF:5
BRH:4
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

// The observable cases of an expression, and the cases observed in one evaluation (S24.11).
func TestCasesOfExpressions(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		list       []string
		n          int64
		want       string
	}{
		{"no element", "list.all(x, x == 'a')", nil, 0, "list has no element: 1; list has one element: 0; list has several elements: 0; x == \"a\": 0/0; list.all(x, x == \"a\"): 1/0"},
		{"one element", "list.all(x, x == 'a')", []string{"b"}, 0, "list has no element: 0; list has one element: 1; list has several elements: 0; x == \"a\": 0/1; list.all(x, x == \"a\"): 0/1"},
		{"several elements", "list.exists(x, x == 'a')", []string{"b", "a", "c"}, 0, "list has no element: 0; list has one element: 0; list has several elements: 1; x == \"a\": 1/1; list.exists(x, x == \"a\"): 1/0"},
		{"a list in the text has one length", "['a'].all(x, x == 'a')", nil, 0, "x == \"a\": 1/0; [\"a\"].all(x, x == \"a\"): 1/0"},
		{"below a boundary", "n < 5", nil, 3, "n is 5: 0; n is 4: 0; n < 5: 1/0"},
		{"at a boundary", "n < 5", nil, 5, "n is 5: 1; n is 4: 0; n < 5: 0/1"},
		{"on its other side", "n < 5", nil, 4, "n is 5: 0; n is 4: 1; n < 5: 1/0"},
		{"values that are equal", "size(list) >= n", []string{"a"}, 1, "size(list) equals n: 1; size(list) >= n: 1/0"},
		{"values that are not", "n > size(list)", []string{"a"}, 2, "n equals size(list): 0; n > size(list): 1/0"},
		{"a text at a boundary", "list[0] <= 'b'", []string{"b"}, 2, "list[0] equals \"b\": 1; list[0] <= \"b\": 1/0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			env, err := cel.NewEnv(cel.EnableMacroCallTracking(), cel.Variable("list", cel.ListType(cel.StringType)), cel.Variable("n", cel.IntType))
			if err != nil {
				t.Fatal(err)
			}
			checked, issues := env.Compile(tc.text)
			if issues.Err() != nil {
				t.Fatal(issues.Err())
			}
			wanted := expression.Noted(checked.NativeRep())
			seen := &expression.Seen{AST: checked.NativeRep()}
			program, err := env.Program(checked, cel.CustomDecorator(func(i interpreter.Interpretable) (interpreter.Interpretable, error) {
				if _, constant := i.(interpreter.InterpretableConst); constant || !wanted[i.ID()] {
					return i, nil
				}
				return noting{i, seen}, nil
			}))
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := program.Eval(map[string]any{"list": tc.list, "n": tc.n}); err != nil {
				t.Fatal(err)
			}
			c := &Covered{Kind: ofExpressions, Text: tc.text, Line: 1}
			c.watch(seen.AST)
			for _, part := range seen.Parts {
				for _, count := range c.watched[part.ID] {
					count(part.Value)
				}
			}
			var got []string
			for _, k := range c.Cases {
				got = append(got, fmt.Sprintf("%s: %d", k.Text, k.Count))
			}
			for _, b := range c.Branches {
				got = append(got, fmt.Sprintf("%s: %d/%d", b.Text, b.True, b.False))
			}
			if diff := cmp.Diff(tc.want, strings.Join(got, "; ")); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// noting records the values of a part.
type noting struct {
	interpreter.Interpretable
	seen *expression.Seen
}

func (n noting) Eval(vars interpreter.Activation) ref.Val {
	value := n.Interpretable.Eval(vars)
	n.seen.Parts = append(n.seen.Parts, expression.Part{ID: n.ID(), Value: value})
	return value
}

// A rule is covered by the operations and resources of the requests that it matches, and a selector by matching and by
// not matching (S24.11).
func TestCasesOfRules(t *testing.T) {
	object := func(text string) *manifests.Object { return manifests.Parse("a.yaml", []byte(text)).Objects[0] }
	for _, tc := range []struct {
		name, operations, resources      string
		operation, resource, subresource string
		want                             string
	}{
		{"the operation and the resource", "[CREATE, UPDATE]", "[pods, secrets]", "UPDATE", "pods", "", "CREATE pods: 0; CREATE secrets: 0; UPDATE pods: 1; UPDATE secrets: 0"},
		{"a subresource", "[UPDATE]", "[pods, pods/status]", "UPDATE", "pods", "status", "UPDATE pods: 0; UPDATE pods/status: 1"},
		{"everything", `["*"]`, `["*", "*/*", "pods/*", "*/scale"]`, "UPDATE", "pods", "status", "* *: 0; * */*: 1; * pods/*: 1; * */scale: 0"},
		{"everything but subresources", `["*"]`, `["*"]`, "DELETE", "pods", "", "* *: 1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newCoverage()
			c.declare([]*manifests.Object{object("{apiVersion: admissionregistration.k8s.io/v1, kind: P, metadata: {name: b}}"), object(fmt.Sprintf(
				"{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: a}, webhooks: [{objectSelector: {matchLabels: {a: b}}, rules: [{operations: %s, resources: %s}]}]}", tc.operations, tc.resources))})
			const owner = "ValidatingWebhookConfiguration a"
			if !c.rule(owner, "webhooks[0].rules[0]", tc.operation, tc.resource, tc.subresource) || c.rule(owner, "webhooks[0].rules[1]", tc.operation, tc.resource, tc.subresource) {
				t.Error("the rules are others")
			}
			var got []string
			for _, k := range c.Items[0].Cases {
				got = append(got, fmt.Sprintf("%s: %d", k.Text, k.Count))
			}
			if diff := cmp.Diff(tc.want, strings.Join(got, "; ")); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			c.selected(owner, "webhooks[0]", selectsNot)
			if diff := cmp.Diff([]Share{{ofRules, strings.Count(tc.want, ": 1"), strings.Count(tc.want, ":")}, {ofSelectors, 1, 2}}, c.Shares()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// A decision is coloured from its first character, even if it begins with the name of a function.
func TestDecisionsHaveTheirPlace(t *testing.T) {
	env, err := cel.NewEnv(cel.EnableMacroCallTracking(), cel.Variable("list", cel.ListType(cel.StringType)), cel.Variable("n", cel.IntType))
	if err != nil {
		t.Fatal(err)
	}
	const text = "n > 1 && size(list) > 2 || list.exists(x, x == 'a') && int(list[0]) < n"
	checked, issues := env.Compile(text)
	if issues.Err() != nil {
		t.Fatal(issues.Err())
	}
	c := &Covered{Kind: ofExpressions, Text: text, Line: 1}
	c.watch(checked.NativeRep())
	var got []string
	for _, b := range c.Branches {
		got = append(got, text[b.begin:min(b.begin+4, len(text))])
	}
	slices.Sort(got)
	if want := []string{"int(", "list", "n > ", "size", "x =="}; !slices.Equal(slices.Compact(got), want) {
		t.Errorf("decisions begin with %q, want %q", got, want)
	}
}
