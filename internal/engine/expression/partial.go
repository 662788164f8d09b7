package expression

import (
	"fmt"
	"maps"
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// Partial is an object with some known fields. In expressions it is a map.
type Partial struct {
	// Fields are the known fields: Absent, Unknown, a *Partial, or a value of JSON. A list has one element: a *Partial,
	// or any value.
	Fields map[string]any
	// Closed reports whether the object has no other fields. Otherwise they may have any value, or
	// be absent.
	Closed bool
}

// Absent is the value of a field that the object does not have, and Unknown any value.
var (
	Absent  = absent{}
	Unknown = types.NewUnknown(1, nil)
)

type absent struct{}

// Without returns an object of which is known only that it has no field at a path, and that it has
// the parents of that field.
func Without(path ...string) *Partial {
	return With(Absent, path...)
}

// With returns an object of which is known only the value at a path.
func With(value any, path ...string) *Partial {
	if len(path) > 1 {
		value = With(value, path[1:]...)
	}
	return &Partial{Fields: map[string]any{path[0]: value}}
}

// Merge returns an object with the known fields of two objects; the fields of p take precedence. A nil object has none.
func Merge(p, other *Partial) *Partial {
	switch {
	case p == nil:
		return other
	case other == nil:
		return p
	}
	merged := &Partial{Fields: maps.Clone(p.Fields), Closed: p.Closed}
	for name, value := range other.Fields {
		known, ok := merged.Fields[name]
		below, both := known.(*Partial)
		beside, partial := value.(*Partial)
		switch {
		case !ok && !p.Closed, ok && known == Unknown:
			merged.Fields[name] = value
		case both && partial:
			merged.Fields[name] = Merge(below, beside)
		}
	}
	return merged
}

var (
	_ traits.Mapper = (*Partial)(nil)
	_ traits.Lister = (*sample)(nil)
)

// Find implements traits.Mapper.
func (p *Partial) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return Unknown, true
	}
	switch value, known := p.Fields[string(name)]; {
	case known && value == Absent, !known && p.Closed:
		return nil, false
	case !known:
		return Unknown, true
	default:
		return partOf(value), true
	}
}

// partOf returns a value of Fields for an expression.
func partOf(value any) ref.Val {
	if list, ok := value.([]any); ok && len(list) > 0 {
		element := ref.Val(Unknown)
		if known, ok := list[0].(*Partial); ok {
			element = known
		}
		return &sample{types.NewRefValList(types.DefaultTypeAdapter, []ref.Val{element})}
	}
	return types.DefaultTypeAdapter.NativeToValue(value)
}

// Get implements traits.Indexer.
func (p *Partial) Get(key ref.Val) ref.Val {
	if value, found := p.Find(key); found {
		return value
	}
	return types.NewErr("no such key: %v", key)
}

// Contains implements traits.Container.
func (p *Partial) Contains(key ref.Val) ref.Val {
	value, found := p.Find(key)
	if found && types.IsUnknown(value) {
		return value
	}
	return types.Bool(found)
}

// Size implements traits.Sizer.
func (p *Partial) Size() ref.Val { return Unknown }

// Iterator implements traits.Iterable. It has one key, which may be any.
func (p *Partial) Iterator() traits.Iterator {
	return types.NewRefValList(types.DefaultTypeAdapter, []ref.Val{Unknown}).Iterator()
}

// ConvertToNative implements ref.Val.
func (p *Partial) ConvertToNative(to reflect.Type) (any, error) {
	return nil, fmt.Errorf("a part of an object is no %v", to)
}

// ConvertToType implements ref.Val.
func (p *Partial) ConvertToType(ref.Type) ref.Val { return Unknown }

// Equal implements ref.Val.
func (p *Partial) Equal(ref.Val) ref.Val { return Unknown }

// Type implements ref.Val.
func (p *Partial) Type() ref.Type { return types.MapType }

// Value implements ref.Val.
func (p *Partial) Value() any { return p.Fields }

// sample is a list of any length above 0, whose elements may have any value.
type sample struct{ traits.Lister }

// Size implements traits.Sizer. Evaluations of an index read it as a number.
func (s *sample) Size() ref.Val { return s.Lister.Size() }

// Contains implements traits.Container.
func (s *sample) Contains(ref.Val) ref.Val { return Unknown }

// Equal implements ref.Val.
func (s *sample) Equal(ref.Val) ref.Val { return Unknown }
