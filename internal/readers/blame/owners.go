package blame

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/go-openapi/jsonpointer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// ByManager is the ByKind of authors known from managedFields only.
const ByManager = "manager"

// Owner is the last author of a field according to metadata.managedFields: the client of the request,
// even if a webhook set the field in that request.
type Owner struct {
	// Path is a JSON pointer to the field.
	Path string
	// Whole is set if the owner also owns everything inside the field.
	Whole bool
	// By lists the names of the field managers.
	By string
}

// Owners returns the owners of an object's fields, by path. Unreadable entries of managedFields, and
// fields that the object does not have, are omitted.
func Owners(object *unstructured.Unstructured) []Owner {
	names := map[string][]string{}
	whole := map[string]bool{}
	for _, entry := range object.GetManagedFields() {
		set := &fieldpath.Set{}
		if entry.FieldsV1 == nil || set.FromJSON(bytes.NewReader(entry.FieldsV1.GetRawBytes())) != nil {
			continue
		}
		leaves := set.Leaves()
		set.Iterate(func(path fieldpath.Path) {
			pointer, ok := pointerTo(object.Object, path)
			if !ok {
				return
			}
			if name := managerName(&entry); !slices.Contains(names[pointer], name) {
				names[pointer] = append(names[pointer], name)
			}
			whole[pointer] = whole[pointer] || leaves.Has(path)
		})
	}
	list := make([]Owner, 0, len(names))
	for pointer, by := range names {
		list = append(list, Owner{Path: pointer, Whole: whole[pointer], By: strings.Join(by, ", ")})
	}
	slices.SortFunc(list, func(a, b Owner) int { return strings.Compare(a.Path, b.Path) })
	return list
}

func managerName(entry *metav1.ManagedFieldsEntry) string {
	if entry.Subresource != "" {
		return entry.Manager + " (" + entry.Subresource + ")"
	}
	return entry.Manager
}

// pointerTo converts a path of managedFields to a JSON pointer; ok is false if the object does not
// have the field.
func pointerTo(object any, path fieldpath.Path) (pointer string, ok bool) {
	var b strings.Builder
	for _, element := range path {
		switch in := object.(type) {
		case map[string]any:
			if element.FieldName == nil {
				return "", false
			}
			if object, ok = in[*element.FieldName]; !ok {
				return "", false
			}
			b.WriteString("/" + jsonpointer.Escape(*element.FieldName))
		case []any:
			i := slices.IndexFunc(in, func(one any) bool { return isElement(one, &element) })
			if element.Index != nil {
				i = *element.Index
			}
			if i < 0 || i >= len(in) {
				return "", false
			}
			object = in[i]
			fmt.Fprintf(&b, "/%d", i)
		default:
			return "", false
		}
	}
	return b.String(), true
}

// isElement reports whether a path element identifies a list element: by the values of its keys, or
// by its own value.
func isElement(one any, element *fieldpath.PathElement) bool {
	switch {
	case element.Value != nil:
		return value.Equals(*element.Value, value.NewValueInterface(one))
	case element.Key == nil:
		return false
	}
	fields, ok := one.(map[string]any)
	return ok && !slices.ContainsFunc(*element.Key, func(key value.Field) bool {
		has, there := fields[key.Name]
		return !there || !value.Equals(key.Value, value.NewValueInterface(has))
	})
}
