package expression

import (
	"slices"
	"strings"
	"testing"

	apiservercel "k8s.io/apiserver/pkg/cel"
)

// TestWorstCases proves S16.22: what a schema bounds has a worst case, and nothing else.
func TestWorstCases(t *testing.T) {
	text := apiservercel.StringType
	field := func(name string, t *apiservercel.DeclType) *apiservercel.DeclField {
		return apiservercel.NewDeclField(name, t, false, nil, nil)
	}
	item := apiservercel.NewObjectType("Item", map[string]*apiservercel.DeclField{"name": field("name", text), "free": field("free", text)})
	spec := apiservercel.NewObjectType("Spec", map[string]*apiservercel.DeclField{
		"replicas": field("replicas", apiservercel.IntType), "few": field("few", apiservercel.NewListType(item, -1)),
		"many": field("many", apiservercel.NewListType(item, -1)), "name": field("name", text),
	})
	types := &Types{
		Object: apiservercel.NewObjectType("Widget", map[string]*apiservercel.DeclField{"spec": field("spec", spec)}),
		Bound: func(path []string) (uint64, bool) {
			switch strings.Join(path, ".") {
			case "spec.few":
				return 10, true
			case "spec.few.@items.name", "spec.name":
				return 100, true
			}
			return 0, false
		},
	}
	var costs []uint64
	for _, tt := range []struct {
		text    string
		bounded bool
	}{
		{"object.spec.replicas <= 5", true},
		{"object.spec.few.all(i, i.name.contains('x'))", true},
		{"object.spec.few.all(a, object.spec.few.all(b, a.name.contains(b.name)))", true},
		{"object.spec.many.all(i, i.name == 'x')", false},
		{"object.spec.few.all(i, i.free.contains('x'))", false},
		{"variables.few == 1", false},
		{"object.spec.none == 1", false},
		{"params.none.contains('x')", false},
	} {
		cost, ok := Estimate(tt.text, Scope{Params: true, Authorizer: true}, types)
		if ok != tt.bounded {
			t.Errorf("%s: %d, %v", tt.text, cost, ok)
		}
		if ok {
			costs = append(costs, cost)
		}
	}
	if !slices.IsSorted(costs) || costs[0] == 0 || costs[0] > 20 || costs[2] < 1000 {
		t.Errorf("costs %v", costs)
	}
}

func TestTheMostIsKept(t *testing.T) {
	var m Most
	for _, cost := range []uint64{3, 9, 4, 1<<64 - 1} {
		m.Note(cost)
	}
	if m.Load() != 9 {
		t.Errorf("got %d", m.Load())
	}
	if n := testing.AllocsPerRun(100, func() { m.Note(m.Load() + 1) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
