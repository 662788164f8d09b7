package objects

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"

	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
)

// layout has the fields of a kind's Go type for its top-level members.
type layout struct {
	// typeMeta is the index of the field with apiVersion and kind.
	typeMeta int
	// members are the indexes of all other fields, by their JSON names.
	members map[string]int
}

// layouts has the *layout of every type used so far; nil for types without one.
var layouts sync.Map

// layoutOf returns the layout of a type; nil unless it is a plain struct of a type meta and named
// members.
func layoutOf(t reflect.Type) *layout {
	if known, ok := layouts.Load(t); ok {
		return known.(*layout)
	}
	known, _ := layouts.LoadOrStore(t, newLayout(t))
	return known.(*layout)
}

func newLayout(t reflect.Type) *layout {
	if t.Kind() != reflect.Struct || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Marshaler]()) {
		return nil
	}
	l := &layout{typeMeta: -1, members: map[string]int{}}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Name == "TypeMeta" && f.Anonymous && name == "":
			l.typeMeta = i
		case !f.IsExported() || name == "" || name == "-":
			return nil
		default:
			l.members[name] = i
		}
	}
	if l.typeMeta < 0 {
		return nil
	}
	return l
}

// patchedPart is patched for a typed object and a patch that changes only some of its top-level
// members. Only these members are converted to JSON and back; the others stay unchanged. The cost
// of a patch then depends on the changed members: it is cheap to set labels of a large object. ok
// is false for other patches and types.
func (s *Set) patchedPart(f *Form, p *patching) (changed bool, object runtime.Object, ok bool, err error) {
	members, ok := p.patch.Members()
	if !ok || initializers.Has(f.object) {
		return false, nil, false, nil
	}
	from := reflect.ValueOf(f.object).Elem()
	l := layoutOf(from.Type())
	if l == nil || len(members) >= len(l.members) {
		return false, nil, false, nil
	}
	before := reflect.New(from.Type())
	before.Elem().Field(l.typeMeta).Set(from.Field(l.typeMeta))
	for _, name := range members {
		if i, known := l.members[name]; known {
			before.Elem().Field(i).Set(from.Field(i))
		}
	}
	data, err := json.Marshal(before.Interface())
	if err != nil {
		return false, nil, true, err
	}
	var content map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &content); err != nil {
		return false, nil, true, err
	}
	content, changed, err = p.applied(content)
	if err != nil || !changed {
		return false, nil, true, err
	}
	if object, err = s.decoded(f, p, content); err != nil {
		return false, nil, true, err
	}
	to := reflect.ValueOf(object).Elem()
	if to.Type() != from.Type() {
		return false, nil, false, nil
	}
	changed = !asWritten.DeepEqual(before.Interface(), object)
	for name, i := range l.members {
		if !slices.Contains(members, name) {
			to.Field(i).Set(from.Field(i))
		}
	}
	return changed, object, true, nil
}
