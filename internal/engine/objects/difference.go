package objects

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/internal/engine/review"
)

// Difference returns the JSON patch from one object to another, both as users see them in a kind;
// nil if they are equal. Elements of lists are compared by position. The objects are not changed.
func Difference(before, after runtime.Object, kind schema.GroupVersionKind, o admission.ObjectInterfaces) ([]byte, error) {
	if Same(before, after) {
		return nil, nil
	}
	s := Set{o: o}
	var contents [2]map[string]any
	for i, object := range []runtime.Object{before, after} {
		converted, err := s.convert(object, kind)
		if err != nil {
			return nil, err
		}
		if contents[i], err = exposed(converted); err != nil {
			return nil, fmt.Errorf("encoding the object: %w", err)
		}
	}
	var d difference
	if d.members("", contents[0], contents[1]); d == nil {
		return nil, nil
	}
	return json.Marshal(d)
}

// Edits returns the Edits of a difference, with the values in the object before.
func Edits(before runtime.Object, patch []byte, kind schema.GroupVersionKind, o admission.ObjectInterfaces) []review.Edit {
	p, err := review.DecodePatch(patch)
	if err != nil || len(p) == 0 {
		return nil
	}
	s := Set{o: o}
	converted, err := s.convert(before, kind)
	if err != nil {
		return nil
	}
	content, err := exposed(converted)
	if err != nil {
		return nil
	}
	return p.Edits(context.Background(), content)
}

// difference is a JSON patch.
type difference review.Patch

// value adds the operations from before to after, two decoded JSON values.
func (d *difference) value(path string, before, after any) {
	was, wasMap := before.(map[string]any)
	is, isMap := after.(map[string]any)
	if wasMap && isMap {
		d.members(path, was, is)
		return
	}
	list, wasList := before.([]any)
	now, isList := after.([]any)
	switch {
	case wasList && isList:
		d.elements(path, list, now)
	case !reflect.DeepEqual(before, after):
		d.add("replace", path, after)
	}
}

func (d *difference) members(path string, before, after map[string]any) {
	both := map[string]any{}
	maps.Copy(both, before)
	maps.Copy(both, after)
	for _, name := range slices.Sorted(maps.Keys(both)) {
		at := review.Below(path, name)
		was, there := before[name]
		switch is, stays := after[name]; {
		case there && stays:
			d.value(at, was, is)
		case stays:
			d.add("add", at, is)
		default:
			d.add("remove", at, nil)
		}
	}
}

func (d *difference) elements(path string, before, after []any) {
	both := min(len(before), len(after))
	for i := range both {
		d.value(path+"/"+strconv.Itoa(i), before[i], after[i])
	}
	for i := len(before) - 1; i >= both; i-- {
		d.add("remove", path+"/"+strconv.Itoa(i), nil)
	}
	for i := both; i < len(after); i++ {
		d.add("add", path+"/"+strconv.Itoa(i), after[i])
	}
}

func (d *difference) add(op, path string, value any) {
	*d = append(*d, review.Operation{Op: op, Path: path, Value: value})
}
