package mutation

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	celmutation "k8s.io/apiserver/pkg/cel/mutation"
	"k8s.io/apiserver/pkg/cel/mutation/dynamic"

	"github.com/gatehouse-dev/gatehouse/internal/engine/review"
)

// Type is the form of a mutation.
type Type string

// The types of mutations, as policies spell them.
const (
	// ApplyConfiguration returns fields that are merged into the object.
	ApplyConfiguration Type = "ApplyConfiguration"
	// JSONPatch returns operations on the object (RFC 6902).
	JSONPatch Type = "JSONPatch"
)

// Change is the change of one mutation. It is immutable, except for Edits.
type Change struct {
	// Type determines which of Configuration and Patch is set.
	Type Type
	// Configuration has the fields to merge, as decoded JSON. Its apiVersion and kind are ignored
	// (S18.12). It is a parameter of Merge.
	Configuration map[string]any
	// Patch has the operations of a JSON patch.
	Patch review.Patch
	// Edits are the Edits of the patch, after it has changed an object.
	Edits []review.Edit
}

// NewChange converts the value of an expression of type t to a Change.
func NewChange(t Type, value ref.Val) (*Change, error) {
	if t == ApplyConfiguration {
		configuration, err := configurationOf(value)
		if err != nil {
			return nil, err
		}
		return &Change{Type: t, Configuration: configuration}, nil
	}
	patch, err := patchOf(value)
	if err != nil {
		return nil, err
	}
	return &Change{Type: t, Patch: patch}, nil
}

// Empty reports whether the change has no operations and no fields.
func (c *Change) Empty() bool { return len(c.Configuration) == 0 && len(c.Patch) == 0 }

// MarshalJSON encodes the change as an array of operations: the operations of a JSON patch, or an
// operation with the op merge for each field of a configuration, by path, whose value is merged
// into the object's value at the path.
func (c *Change) MarshalJSON() ([]byte, error) {
	list := slices.Clone(c.Patch)
	if c.Type == ApplyConfiguration {
		list = merges(list, "", c.Configuration)
	}
	if list == nil {
		list = review.Patch{}
	}
	return json.Marshal(list)
}

// merges appends the operations of a configuration.
func merges(list review.Patch, path string, fields map[string]any) review.Patch {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		value, at := fields[name], review.Below(path, name)
		if below, ok := value.(map[string]any); ok && len(below) > 0 {
			list = merges(list, at, below)
			continue
		}
		list = append(list, review.Operation{Op: "merge", Path: at, Value: value})
	}
	return list
}

// configurationOf returns the fields of an Object.
func configurationOf(value ref.Val) (map[string]any, error) {
	object, ok := value.(*dynamic.ObjectVal)
	if !ok {
		return nil, fmt.Errorf("unsupported return type from ApplyConfiguration expression: %v", value.Type())
	}
	if err := checkNames(object); err != nil {
		return nil, err
	}
	content, ok := object.Value().(map[string]any)
	if !ok {
		return nil, fmt.Errorf("invalid return type: %T", value)
	}
	return content, nil
}

// checkNames compares the names of an Object's types with their fields (S18.11). It sorts several
// errors by their texts.
func checkNames(object *dynamic.ObjectVal) error {
	err := object.CheckTypeNamesMatchFieldPathNames()
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all := slices.Clone(joined.Unwrap())
		slices.SortFunc(all, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
		err = errors.Join(all...)
	}
	return fmt.Errorf("type mismatch: %w", err)
}

// patchOf returns the operations of a list of JSONPatch.
func patchOf(value ref.Val) (review.Patch, error) {
	list, ok := value.(traits.Lister)
	if !ok {
		return nil, errors.New("type mismatch: JSONPatchType.expression should evaluate to array")
	}
	var patch review.Patch
	for it := list.Iterator(); it.HasNext() == types.True; {
		element := it.Next()
		native, err := element.ConvertToNative(reflect.TypeFor[*celmutation.JSONPatchVal]())
		if err != nil {
			return nil, fmt.Errorf("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch: %w", err)
		}
		from, ok := native.(*celmutation.JSONPatchVal)
		if !ok {
			return nil, fmt.Errorf("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch, got element of %T", native)
		}
		o := review.Operation{
			Op: from.Op, Path: from.Path, From: from.From,
			HasPath: writable(from.Path), HasFrom: from.From != "" && writable(from.From),
		}
		if from.Val != nil {
			if o.Value, err = valueOf(from.Val); err != nil {
				return nil, err
			}
		}
		patch = append(patch, o)
	}
	return patch, nil
}
