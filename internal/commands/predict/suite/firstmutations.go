package suite

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/google/cel-go/common/ast"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/suite/solve"
)

// mutations finds two requests for each mutation: with a change, and without.
func (f *firstTests) mutations() (tests []written, missing []string, err error) {
	for i := range f.list("mutations") {
		changed, before, err := f.changed(i)
		if err != nil {
			return nil, nil, err
		}
		if changed == nil {
			missing = append(missing, fmt.Sprintf("%s: no request was found that spec.mutations[%d] changes; write one", f.name, i))
			continue
		}
		part := partOf(before, changed.object)
		tests = append(tests, written{name: fmt.Sprintf("%s changes by spec.mutations[%d]", f.name, i), sj: changed.sj, st: changed.st, expect: map[string]any{"allowed": true, "object": part}})
		same, name, err := f.unchanged(i, changed)
		if err != nil {
			return nil, nil, err
		}
		if same == nil {
			missing = append(missing, fmt.Sprintf("%s: no request was found that spec.mutations[%d] does not change; write one", f.name, i))
			continue
		}
		tests = append(tests, written{name: fmt.Sprintf(name, f.name, i), sj: same.sj, st: same.st, expect: map[string]any{"allowed": true, "object": valuesAt(part, same.object)}})
	}
	return tests, missing, nil
}

// variants yields goals for a mutation: no goal, the presence of its fields, the presence of the fields of all mutations,
// and values of the mutation's conditions.
func (f *firstTests) variants(i int) (list [][]solve.Goal) {
	e := f.mutationsOf[i]
	if e == nil {
		return [][]solve.Goal{nil}
	}
	conditions, there := present(e)
	list = append(list, nil, there)
	for _, e := range f.otherMutations() {
		_, others := present(e)
		there = append(there, others...)
	}
	if len(there) > len(list[1]) {
		list = append(list, there)
	}
	for _, c := range conditions {
		for _, want := range []bool{true, false} {
			goal := solve.Goal{Expression: c, Want: want}
			list = append(list, []solve.Goal{goal}, append(slices.Clone(there), goal))
		}
	}
	return list
}

// present returns the conditions of a mutation, and goals for the presence of the fields that it reads.
func present(e ast.Expr) (conditions []ast.Expr, there []solve.Goal) {
	conditions, presence := solve.Branches(e)
	for _, p := range presence {
		there = append(there, solve.Goal{Expression: p, Want: true})
	}
	return conditions, there
}

// otherMutations returns the mutations of the other policies of the test environment.
func (f *firstTests) otherMutations() (list []ast.Expr) {
	for _, o := range f.set.Objects {
		if at(o.Content, "kind") == mutatingPolicy && at(o.Content, "metadata", "name") != f.name {
			list = append(list, expressions(o, "mutations")...)
		}
	}
	return slices.DeleteFunc(list, func(e ast.Expr) bool { return e == nil })
}

// changed returns a request that a mutation changes, and the object without the change; nil if none is found.
func (f *firstTests) changed(i int) (a *attempt, before map[string]any, err error) {
	wanted := func(a *attempt) bool { return a.evaluated && a.allowed && a.mutated[i] }
	for _, sj := range f.subjects {
		if err := f.begin(sj); err != nil {
			return nil, nil, err
		}
		if sj.base == nil {
			continue
		}
		for _, goals := range f.variants(i) {
			a, err := f.search(sj, sj.base, append(f.goals(-1, func(int) bool { return false }), goals...), wanted)
			if err != nil {
				return nil, nil, err
			}
			if a == nil {
				continue
			}
			_, seen, err := f.see(sj, a.st)
			if err != nil {
				return nil, nil, err
			}
			if seen != nil && a.object != nil {
				return a, seen.Documents[solve.Object].Seen, nil
			}
		}
	}
	return nil, nil, nil
}

// unchanged returns a request that a mutation does not change; name is the format of its test.
func (f *firstTests) unchanged(i int, changed *attempt) (a *attempt, name string, err error) {
	sj := changed.sj
	name = "%s leaves a request as it is by spec.mutations[%d]"
	wanted := func(a *attempt) bool { return a.evaluated && a.allowed && !a.mutated[i] && a.object != nil }
	conditions := f.goals(-1, func(int) bool { return false })
	for _, goals := range f.variants(i) {
		if a, err = f.search(sj, sj.base, append(slices.Clone(conditions), goals...), wanted); a != nil || err != nil {
			return a, name, err
		}
	}
	// A result is often left as it is.
	d := changed.st.Documents[solve.Object]
	again := runtime.DeepCopyJSON(d.Sent)
	merge(again, partOf(d.Seen, changed.object), changed.object)
	a, err = f.try(sj, changed.st.Write(solve.Object, again))
	if err != nil || wanted(a) {
		return a, name, err
	}
	for _, c := range conditions {
		a, err := f.search(sj, sj.base, []solve.Goal{{Expression: c.Expression}}, func(a *attempt) bool {
			return a.allowed && len(a.mutated) == 0 && a.object != nil
		})
		if a != nil || err != nil {
			return a, "%s excludes a request from spec.mutations[%d] by a match condition", err
		}
	}
	return nil, "", nil
}

// ofServer are metadata that the server changes.
var ofServer = []string{"managedFields", "uid", "creationTimestamp", "resourceVersion", "generation"}

// partOf returns the part of an object that differs from another: null for a removed field, and elements of lists with
// names by their names.
func partOf(before, after map[string]any) map[string]any {
	part, _ := differing(before, after, "").(map[string]any)
	return part
}

func differing(before, after any, path string) any {
	b, isMap := before.(map[string]any)
	a, both := after.(map[string]any)
	if isMap && both {
		out := map[string]any{}
		for _, key := range slices.Sorted(maps.Keys(a)) {
			if path == ".metadata" && slices.Contains(ofServer, key) || reflect.DeepEqual(a[key], b[key]) {
				continue
			}
			out[key] = differing(b[key], a[key], path+"."+key)
		}
		for key := range b {
			if _, there := a[key]; !there && (path != ".metadata" || !slices.Contains(ofServer, key)) {
				out[key] = nil
			}
		}
		return out
	}
	list, isList := before.([]any)
	other, both := after.([]any)
	if !isList || !both || len(list) != len(other) {
		return after
	}
	var out []any
	for i := range list {
		x, _ := list[i].(map[string]any)
		y, _ := other[i].(map[string]any)
		name, named := y["name"]
		if x == nil || y == nil || !named || x["name"] != name {
			return after
		}
		if reflect.DeepEqual(x, y) {
			continue
		}
		part, _ := differing(x, y, path).(map[string]any)
		part["name"] = name
		out = append(out, part)
	}
	return out
}

// merge sets the fields of a part in an object to their values in another object.
func merge(object, part, from map[string]any) {
	for key, inner := range part {
		below, isMap := inner.(map[string]any)
		current, both := object[key].(map[string]any)
		source, there := from[key].(map[string]any)
		switch {
		case isMap && both && there:
			merge(current, below, source)
		case from[key] == nil:
			delete(object, key)
		default:
			object[key] = runtime.DeepCopyJSONValue(from[key])
		}
	}
}

// valuesAt returns the values of an object at the fields of a part; null for fields that it does not have.
func valuesAt(part, object map[string]any) map[string]any {
	out := map[string]any{}
	for key, inner := range part {
		below, isMap := inner.(map[string]any)
		current, there := object[key].(map[string]any)
		list, isList := object[key].([]any)
		switch {
		case isMap && there:
			out[key] = valuesAt(below, current)
		case !isList || len(list) > 0:
			out[key] = object[key]
		}
	}
	return out
}
