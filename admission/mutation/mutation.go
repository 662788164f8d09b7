package mutation

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	celmutation "k8s.io/apiserver/pkg/cel/mutation"
	"k8s.io/apiserver/pkg/cel/mutation/dynamic"

	"github.com/gatehouse-dev/gatehouse/admission/review"
)

// Type says in which way an expression tells what to change.
type Type string

// The types of mutations, as policies spell them.
const (
	// ApplyConfiguration gives fields that are merged into the object.
	ApplyConfiguration Type = "ApplyConfiguration"
	// JSONPatch gives operations on the object (RFC 6902).
	JSONPatch Type = "JSONPatch"
)

// Change is what one mutation wants changed. It is immutable.
type Change struct {
	// Type says which of the two others is set.
	Type Type
	// Configuration has the fields to merge, as decoded JSON has them. What it says of
	// apiVersion and kind does not count (S18.12). Merge takes it.
	Configuration map[string]any
	// Patch has the operations of a JSON patch.
	Patch review.Patch
}

// NewChange makes a Change of the value of an expression of type t.
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

// MarshalJSON encodes what is to be changed: the configuration, or the array of the patch's
// operations.
func (c *Change) MarshalJSON() ([]byte, error) {
	if c.Type == ApplyConfiguration {
		return json.Marshal(c.Configuration)
	}
	operations := make([]map[string]any, len(c.Patch))
	for i := range c.Patch {
		operations[i] = operationOf(&c.Patch[i])
	}
	return json.Marshal(operations)
}

// operationOf returns the members of an operation that it needs.
func operationOf(o *review.Operation) map[string]any {
	m := map[string]any{"op": o.Op, "path": o.Path}
	switch o.Op {
	case "remove":
	case "move", "copy":
		m["from"] = o.From
	default:
		m["value"] = o.Value
	}
	return m
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

// checkNames compares the names of an Object's types with the fields they stand in (S18.11).
// Of several mistakes, the order is that of their texts.
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
