package objects

import (
	"bytes"
	"maps"
	"reflect"
	"sync"
	"unsafe"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Same tells quickly whether two objects of one type have the same content. It may say no
// of content that is written differently and means the same, such as quantities.
func Same(one, other runtime.Object) bool {
	if u, ok := one.(*unstructured.Unstructured); ok {
		v, ok := other.(*unstructured.Unstructured)
		return ok && reflect.DeepEqual(u.Object, v.Object)
	}
	a, b := reflect.ValueOf(one), reflect.ValueOf(other)
	return a.Type() == b.Type() && sameValue(a, b)
}

// sameValue compares values of one type. API types have no cycles.
func sameValue(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.Pointer:
		if a.IsNil() || b.IsNil() {
			return a.IsNil() == b.IsNil()
		}
		return a.UnsafePointer() == b.UnsafePointer() || sameValue(a.Elem(), b.Elem())
	case reflect.Struct:
		return sameFields(a, b)
	case reflect.Slice:
		if a.Len() != b.Len() {
			return false
		}
		if a.UnsafePointer() == b.UnsafePointer() {
			return true
		}
		fallthrough
	case reflect.Array:
		for i := range a.Len() {
			if !sameValue(a.Index(i), b.Index(i)) {
				return false
			}
		}
		return true
	case reflect.Map:
		return sameMap(a, b)
	case reflect.Interface:
		if a.IsNil() || b.IsNil() {
			return a.IsNil() == b.IsNil()
		}
		return a.Elem().Type() == b.Elem().Type() && sameValue(a.Elem(), b.Elem())
	case reflect.String:
		return a.String() == b.String()
	case reflect.Bool:
		return a.Bool() == b.Bool()
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return a.Int() == b.Int()
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return a.Uint() == b.Uint()
	case reflect.Float32, reflect.Float64:
		return a.Float() == b.Float()
	}
	return false
}

// sameFields compares structs.
func sameFields(a, b reflect.Value) bool {
	if a.CanAddr() && b.CanAddr() {
		return comparisonOf(a.Type()).same(a.Addr().UnsafePointer(), b.Addr().UnsafePointer())
	}
	for i := range a.NumField() {
		if !sameValue(a.Field(i), b.Field(i)) {
			return false
		}
	}
	return true
}

// comparison compares two values of one type in memory, without a look at the type: objects are
// compared once for each plugin that may change them. What is there must not be changed.
type comparison struct {
	same func(a, b unsafe.Pointer) bool
	// plain tells that values are the same if and only if their bytes are.
	plain bool
}

// comparisons remembers the comparison of each type: a map of reflect.Type to comparison.
var comparisons sync.Map

func comparisonOf(t reflect.Type) comparison {
	if known, ok := comparisons.Load(t); ok {
		return known.(comparison)
	}
	c := newComparison(t)
	comparisons.Store(t, c)
	return c
}

func newComparison(t reflect.Type) comparison {
	switch t.Kind() {
	case reflect.String:
		return comparison{same: func(a, b unsafe.Pointer) bool { return *(*string)(a) == *(*string)(b) }}
	case reflect.Struct:
		return structComparison(t)
	case reflect.Pointer:
		elem := laterComparison(t.Elem())
		return comparison{same: func(a, b unsafe.Pointer) bool {
			p, q := *(*unsafe.Pointer)(a), *(*unsafe.Pointer)(b)
			return p == q || p != nil && q != nil && elem().same(p, q)
		}}
	case reflect.Slice:
		elem, size := laterComparison(t.Elem()), t.Elem().Size()
		return comparison{same: func(a, b unsafe.Pointer) bool {
			// All slices are alike but for the type of their elements.
			one, other := *(*[]byte)(a), *(*[]byte)(b)
			if len(one) != len(other) {
				return false
			}
			p, q := unsafe.Pointer(unsafe.SliceData(one)), unsafe.Pointer(unsafe.SliceData(other))
			return p == q || len(one) == 0 || elem().sameRun(p, q, len(one), size)
		}}
	case reflect.Array:
		elem, size, n := comparisonOf(t.Elem()), t.Elem().Size(), t.Len()
		return comparison{plain: elem.plain, same: func(a, b unsafe.Pointer) bool { return elem.sameRun(a, b, n, size) }}
	case reflect.Map, reflect.Interface:
		if t == reflect.TypeFor[map[string]string]() {
			return comparison{same: func(a, b unsafe.Pointer) bool {
				return maps.Equal(*(*map[string]string)(a), *(*map[string]string)(b))
			}}
		}
		return comparison{same: func(a, b unsafe.Pointer) bool {
			return sameValue(reflect.NewAt(t, a).Elem(), reflect.NewAt(t, b).Elem())
		}}
	}
	size := t.Size()
	return comparison{plain: true, same: func(a, b unsafe.Pointer) bool { return sameBytes(a, b, size) }}
}

// laterComparison is a comparison that is made when it is needed: a type may contain itself.
func laterComparison(t reflect.Type) func() comparison {
	return sync.OnceValue(func() comparison { return comparisonOf(t) })
}

// sameRun compares n values that follow each other.
func (c comparison) sameRun(a, b unsafe.Pointer, n int, size uintptr) bool {
	if c.plain {
		return sameBytes(a, b, uintptr(n)*size)
	}
	for i := range uintptr(n) {
		if !c.same(unsafe.Add(a, i*size), unsafe.Add(b, i*size)) {
			return false
		}
	}
	return true
}

// structComparison compares runs of plain fields at once, and the others one by one.
func structComparison(t reflect.Type) comparison {
	type part struct {
		comparison
		from, to uintptr
	}
	var parts []part
	for f := range t.Fields() {
		p := part{comparisonOf(f.Type), f.Offset, f.Offset + f.Type.Size()}
		if last := len(parts) - 1; p.plain && last >= 0 && parts[last].plain && parts[last].to == p.from {
			from, size := parts[last].from, p.to-parts[last].from
			parts[last] = part{comparison{plain: true, same: func(a, b unsafe.Pointer) bool { return sameBytes(a, b, size) }}, from, p.to}
			continue
		}
		parts = append(parts, p)
	}
	return comparison{
		// The bytes between fields mean nothing.
		plain: len(parts) == 0 || len(parts) == 1 && parts[0].plain && parts[0].to == t.Size(),
		same: func(a, b unsafe.Pointer) bool {
			for i := range parts {
				if p := &parts[i]; !p.same(unsafe.Add(a, p.from), unsafe.Add(b, p.from)) {
					return false
				}
			}
			return true
		},
	}
}

func sameBytes(a, b unsafe.Pointer, size uintptr) bool {
	return bytes.Equal(unsafe.Slice((*byte)(a), size), unsafe.Slice((*byte)(b), size))
}

func sameMap(a, b reflect.Value) bool {
	if a.Len() != b.Len() {
		return false
	}
	if a.Len() == 0 || a.UnsafePointer() == b.UnsafePointer() {
		return true
	}
	for members := a.MapRange(); members.Next(); {
		other := b.MapIndex(members.Key())
		if !other.IsValid() || !sameValue(members.Value(), other) {
			return false
		}
	}
	return true
}
