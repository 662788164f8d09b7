package expression

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	apiservercel "k8s.io/apiserver/pkg/cel"
)

// TestWorstCases proves S16.22: exactly the expressions that a schema bounds have a worst case.
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

// The environment of a kind is created once: the expressions of many policies for the same kind are
// estimated in a row, and concurrently.
func TestTypesMakeAnEnvironmentOnce(t *testing.T) {
	fields := map[string]*apiservercel.DeclField{}
	for i := range 200 {
		name := fmt.Sprintf("field%d", i)
		fields[name] = apiservercel.NewDeclField(name, apiservercel.IntType, false, nil, nil)
	}
	types := &Types{Object: apiservercel.NewObjectType("Wide", fields), Bound: func([]string) (uint64, bool) { return 0, false }}
	for _, scope := range []Scope{{Authorizer: true}, {Params: true}} {
		first, err := types.environment(scope)
		if err != nil {
			t.Fatal(err)
		}
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				if cost, ok := Estimate("object.field1 <= 5", scope, types); !ok || cost == 0 {
					t.Errorf("%+v: %d, %v", scope, cost, ok)
				}
			})
		}
		group.Wait()
		if again, err := types.environment(scope); again != first || err != nil {
			t.Errorf("%+v: another environment is made, %v", scope, err)
		}
	}
	without := func() *Types { return &Types{Object: types.Object, Bound: types.Bound} }
	estimate := func(types *Types) func() {
		return func() { Estimate("object.field1 <= 5", Scope{}, types) }
	}
	if anew, known := testing.AllocsPerRun(3, func() { estimate(without())() }), testing.AllocsPerRun(3, estimate(types)); known > anew/2 {
		t.Errorf("an estimate allocates %v times when the environment is known, %v times when it is not", known, anew)
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
