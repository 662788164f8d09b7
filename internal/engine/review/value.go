package review

import (
	"math"
	"reflect"
	"slices"
)

// finish converts copies made by editable to plain maps and lists, in place.
func finish(v any) any {
	switch v := v.(type) {
	case editMap:
		for k, e := range v {
			switch e.(type) {
			case editMap, *editList:
				v[k] = finish(e)
			}
		}
		return map[string]any(v)
	case *editList:
		for i, e := range v.items {
			switch e.(type) {
			case editMap, *editList:
				v.items[i] = finish(e)
			}
		}
		return v.items
	}
	return v
}

// Equal compares JSON values; numbers by value, whatever their type. Maps and lists that share
// their memory are equal without comparing their contents.
func Equal(a, b any) bool {
	if m, ok := asMap(a); ok {
		n, ok := asMap(b)
		if !ok || len(m) != len(n) {
			return false
		}
		if reflect.ValueOf(m).UnsafePointer() == reflect.ValueOf(n).UnsafePointer() {
			return true
		}
		for k, v := range m {
			w, ok := n[k]
			if !ok || !Equal(v, w) {
				return false
			}
		}
		return true
	}
	if l, ok := asList(a); ok {
		k, ok := asList(b)
		if !ok || len(l) != len(k) {
			return false
		}
		if len(l) == 0 || &l[0] == &k[0] {
			return true
		}
		for i := range l {
			if !Equal(l[i], k[i]) {
				return false
			}
		}
		return true
	}
	switch a := a.(type) {
	case nil:
		return b == nil
	case string:
		s, ok := b.(string)
		return ok && a == s
	case bool:
		s, ok := b.(bool)
		return ok && a == s
	case int64:
		switch b := b.(type) {
		case int64:
			return a == b
		case float64:
			return equalNumbers(a, b)
		}
		return false
	case float64:
		switch b := b.(type) {
		case int64:
			return equalNumbers(b, a)
		case float64:
			return a == b
		}
		return false
	}
	return reflect.DeepEqual(a, b)
}

// Has reports whether a JSON value contains another one: its objects may have additional members.
func Has(found, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		in, ok := found.(map[string]any)
		for key, value := range want {
			ok = ok && Has(in[key], value)
		}
		return ok
	case []any:
		in, ok := found.([]any)
		return ok && slices.EqualFunc(in, want, Has)
	}
	return Equal(found, want)
}

func equalNumbers(i int64, f float64) bool {
	return f == math.Trunc(f) && f >= math.MinInt64 && f < math.MaxInt64 && int64(f) == i
}

func asMap(v any) (map[string]any, bool) {
	switch v := v.(type) {
	case map[string]any:
		return v, true
	case editMap:
		return v, true
	}
	return nil, false
}

func asList(v any) ([]any, bool) {
	switch v := v.(type) {
	case []any:
		return v, true
	case *editList:
		return v.items, true
	}
	return nil, false
}
