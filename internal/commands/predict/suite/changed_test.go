package suite

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	celparser "github.com/google/cel-go/parser"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/stage"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
)

// Suites that reach every branch find changed policies (S24.11): each of twenty policies is changed in up to ten ways,
// one operator at a time. All changed policies are in one test environment and reject nothing; their results for the
// request of each test show whether the test finds the change.
func TestSuitesFindChanges(t *testing.T) {
	const ways, least = 10, 90
	set, err := Find([]string{"testdata/changed"}, Reading{})
	if err != nil || len(set.Errors) > 0 || len(set.Suites) != 1 {
		t.Fatal(err, set)
	}
	s := set.Suites[0]
	objects, err := s.World()
	if err != nil {
		t.Fatal(err)
	}
	world := &manifests.Set{Files: []string{"testdata/changed/policies.yaml"}}
	changes := map[string][]change{}
	for _, o := range objects {
		name := at(o.Content, "metadata", "name")
		world.Objects = append(world.Objects, o, audited(name))
		for i, c := range spread(changesOf(t, o.Content), ways) {
			c.policy = fmt.Sprintf("%s-%d", name, i+1)
			changes[name] = append(changes[name], c)
			content := runtime.DeepCopyJSON(o.Content)
			content["metadata"] = map[string]any{"name": c.policy}
			spec := content["spec"].(map[string]any)
			spec[c.list].([]any)[c.index].(map[string]any)["expression"] = c.text
			world.Objects = append(world.Objects, o.With(content), audited(c.policy))
		}
	}
	if len(changes) != 20 {
		t.Fatalf("there are %d policies", len(changes))
	}
	w, err := stage.Open(t.Context(), stage.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := load(t.Context(), w, world); err != nil {
		t.Fatal(err)
	}
	coverage := newCoverage()
	coverage.declare(objects)
	found := map[string]bool{}
	calls := &callers{}
	for _, test := range s.Tests {
		o, err := test.judge(t.Context(), w, calls, coverage.saw)
		if err != nil {
			t.Fatalf("%s: %v", test.Name, err)
		}
		coverage.took(o)
		name, _, _ := strings.Cut(test.Name, "/")
		passes := func(policy string) bool {
			v := o.verdictOf(policy)
			return len(v.violated)+len(v.failed) == 0
		}
		want := *test.expect.allowed
		if !o.Allowed || passes(name) != want {
			t.Errorf("%s: the policy itself says %v: %s", test.Name, passes(name), o.Message)
		}
		for _, c := range changes[name] {
			found[c.policy] = found[c.policy] || passes(c.policy) != want
		}
	}
	coverage.finish()
	for _, share := range coverage.Shares() {
		if (share.Kind == ofConditions || share.Kind == ofExpressions) && share.Taken != share.All {
			t.Errorf("the tests take %d of %d ways of %s", share.Taken, share.All, share.Kind)
		}
	}
	all, hits := 0, 0
	for _, o := range objects {
		for _, c := range changes[at(o.Content, "metadata", "name")] {
			all++
			if found[c.policy] {
				hits++
			} else {
				t.Logf("not found: %s: %s", c.policy, c.text)
			}
		}
	}
	t.Logf("%d of %d changes of 20 policies are found by %d tests", hits, all, len(s.Tests))
	if hits*100 < all*least || all < 150 {
		t.Errorf("%d of %d changes are found, want %d %%", hits, all, least)
	}
}

// audited binds a policy so that it rejects nothing.
func audited(policy string) *manifests.Object {
	return &manifests.Object{File: "the test", Line: 1, Content: map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": map[string]any{"name": policy},
		"spec": map[string]any{"policyName": policy, "validationActions": []any{"Audit"}},
	}}
}

// change is one changed expression of a policy.
type change struct {
	policy, list string
	index        int
	text         string
}

// changesOf returns all changes of the expressions of a policy.
func changesOf(t *testing.T, content map[string]any) []change {
	var out []change
	for _, list := range []string{"matchConditions", "validations"} {
		entries, _ := walk(content, "spec", list).([]any)
		for i, e := range entries {
			for _, text := range variants(t, at(e.(map[string]any), "expression")) {
				out = append(out, change{list: list, index: i, text: text})
			}
		}
	}
	return out
}

// others lists the functions that can replace one another.
var others = [][]string{
	{operators.LogicalAnd, operators.LogicalOr}, {operators.Equals, operators.NotEquals},
	{operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals},
	{"all", "exists", "exists_one"}, {"startsWith", "endsWith", "contains"},
}

// deciding lists the functions whose value can be negated.
var deciding = append(slices.Concat(others...), operators.In, "has", operators.LogicalNot)

// variants returns the texts of an expression with one operator changed: replaced by another of its kind, or with its
// value negated. Macros are not expanded, so that they are calls as well.
func variants(t *testing.T, text string) []string {
	p, err := celparser.NewParser()
	if err != nil {
		t.Fatal(err)
	}
	parsed, issues := p.Parse(common.NewTextSource(text))
	if len(issues.GetErrors()) > 0 {
		t.Fatal(issues.ToDisplayString())
	}
	factory := ast.NewExprFactory()
	var out []string
	with := func(id int64, change func(ast.Expr) ast.Expr) {
		changed, err := celparser.Unparse(rebuilt(factory, parsed.Expr(), id, change), ast.NewSourceInfo(nil))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, changed)
	}
	ast.PreOrderVisit(parsed.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.CallKind {
			return
		}
		function := e.AsCall().FunctionName()
		for _, list := range others {
			for _, other := range list {
				if other != function && slices.Contains(list, function) {
					with(e.ID(), func(e ast.Expr) ast.Expr { return called(factory, e, other) })
				}
			}
		}
		switch {
		case function == operators.LogicalNot:
			with(e.ID(), func(e ast.Expr) ast.Expr { return e.AsCall().Args()[0] })
		case function == operators.Conditional:
			with(e.ID(), func(e ast.Expr) ast.Expr {
				a := e.AsCall().Args()
				return factory.NewCall(e.ID(), function, a[0], a[2], a[1])
			})
		case slices.Contains(deciding, function):
			with(e.ID(), func(e ast.Expr) ast.Expr { return factory.NewCall(1<<40, operators.LogicalNot, e) })
		}
	}))
	return out
}

// called returns a call of another function.
func called(factory ast.ExprFactory, e ast.Expr, function string) ast.Expr {
	c := e.AsCall()
	if c.IsMemberFunction() {
		return factory.NewMemberCall(e.ID(), function, c.Target(), c.Args()...)
	}
	return factory.NewCall(e.ID(), function, c.Args()...)
}

// rebuilt returns an expression with one part changed.
func rebuilt(factory ast.ExprFactory, e ast.Expr, id int64, change func(ast.Expr) ast.Expr) ast.Expr {
	again := func(e ast.Expr) ast.Expr { return rebuilt(factory, e, id, change) }
	out := e
	switch e.Kind() {
	case ast.CallKind:
		c := e.AsCall()
		args := make([]ast.Expr, len(c.Args()))
		for i, a := range c.Args() {
			args[i] = again(a)
		}
		if c.IsMemberFunction() {
			out = factory.NewMemberCall(e.ID(), c.FunctionName(), again(c.Target()), args...)
		} else {
			out = factory.NewCall(e.ID(), c.FunctionName(), args...)
		}
	case ast.SelectKind:
		out = factory.NewSelect(e.ID(), again(e.AsSelect().Operand()), e.AsSelect().FieldName())
	}
	if e.ID() == id {
		return change(out)
	}
	return out
}

// spread returns some elements of a list, evenly distributed.
func spread[T any](list []T, most int) []T {
	if len(list) <= most {
		return list
	}
	out := make([]T, most)
	for i := range out {
		out[i] = list[i*len(list)/most]
	}
	return out
}
