package mutation

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// Schemas has the schemas of the kinds of a server.
type Schemas interface {
	// TypeConverter returns the current schema of a kind in the form for server-side apply; nil if
	// the kind has no schema.
	TypeConverter(kind apischema.GroupVersionKind) managedfields.TypeConverter
}

// errNoSchema is the error for a kind without a schema, with the text of k8s.io/apiserver. A retry
// does not help: the server has the schema of a kind as soon as it serves the kind (D51).
var errNoSchema = errors.New("no corresponding type for")

// Merge returns the content of object, which has the given kind, with the fields of an apply
// configuration merged into it by the schema of the kind (S18.14). Fields are added and replaced,
// never removed, and no manager owns them (S18.8). Object and configuration are not changed; the
// result may share memory with both.
//
// It is an error if the kind has no schema, if the configuration does not fit the schema (S18.13),
// or if it sets an atomic field (S18.15).
func Merge(schemas Schemas, kind apischema.GroupVersionKind, object runtime.Object, configuration map[string]any) (map[string]any, error) {
	merged, err := merge(schemas, kind, object, configuration)
	if err != nil {
		return nil, fmt.Errorf("error applying patch: %w", err)
	}
	return merged, nil
}

func merge(schemas Schemas, kind apischema.GroupVersionKind, object runtime.Object, configuration map[string]any) (merged map[string]any, err error) {
	// The structured-merge-diff library panics on some values that violate the schema.
	defer func() {
		if p := recover(); p != nil {
			merged, err = nil, fmt.Errorf("failed to merge patch: %v", p)
		}
	}()
	var converter managedfields.TypeConverter
	if schemas != nil {
		converter = schemas.TypeConverter(kind)
	}
	if converter == nil {
		return nil, fmt.Errorf("failed to convert patch object to typed object: %w %s", errNoSchema, kind)
	}
	wanted, err := typedConfiguration(converter, kind, configuration)
	if err != nil {
		return nil, err
	}
	live, err := converter.ObjectToTyped(object, typed.AllowDuplicates)
	if err != nil {
		return nil, fmt.Errorf("failed to convert original object to typed object: %w", err)
	}
	result, err := live.Merge(wanted)
	if err != nil {
		return nil, fmt.Errorf("failed to merge patch: %w", err)
	}
	out, err := converter.TypedToObject(result)
	if err != nil {
		return nil, fmt.Errorf("failed to convert typed object to object: %w", err)
	}
	u, ok := out.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("failed to convert typed object to object: it is a %T", out)
	}
	return u.Object, nil
}

// typedConfiguration returns a configuration with the type of its kind. It must set no atomic
// field.
func typedConfiguration(converter managedfields.TypeConverter, kind apischema.GroupVersionKind, configuration map[string]any) (*typed.TypedValue, error) {
	configuration = maps.Clone(configuration)
	if configuration == nil {
		configuration = map[string]any{}
	}
	configuration["apiVersion"], configuration["kind"] = kind.ToAPIVersionAndKind()
	out, err := converter.ObjectToTyped(&unstructured.Unstructured{Object: configuration})
	if err == nil {
		err = checkNumbers(configuration)
	}
	if err != nil {
		return nil, fmt.Errorf("failed to convert patch object to typed object: %w", err)
	}
	if found := atomics(nil, nil, out.Schema(), out.TypeRef(), out.AsValue()); len(found) > 0 {
		slices.Sort(found)
		return nil, fmt.Errorf("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: %s", strings.Join(found, ", "))
	}
	return out, nil
}

// atomics appends to found the paths of all atomic lists, maps and structs that v sets: setting
// some fields of such a value would drop the others. It skips maps whose keys the schema does not
// name (F20).
func atomics(found []string, path fieldpath.Path, s *schema.Schema, ref schema.TypeRef, v value.Value) []string {
	atom, ok := s.Resolve(ref)
	if !ok {
		return found
	}
	switch {
	case v.IsMap() && atom.Map != nil:
		if atom.Map.ElementRelationship == schema.Atomic {
			found = append(found, path.String())
		}
		v.AsMap().Iterate(func(name string, e value.Value) bool {
			if field, ok := atom.Map.FindField(name); ok {
				found = atomics(found, below(path, fieldpath.PathElement{FieldName: &name}), s, field.Type, e)
			}
			return true
		})
	case v.IsList() && atom.List != nil:
		if atom.List.ElementRelationship == schema.Atomic {
			found = append(found, path.String())
		}
		list := v.AsList()
		for i := range list.Length() {
			found = atomics(found, below(path, fieldpath.PathElement{Index: &i}), s, atom.List.ElementType, list.At(i))
		}
	}
	return found
}

func below(path fieldpath.Path, e fieldpath.PathElement) fieldpath.Path {
	return append(slices.Clip(path), e)
}
