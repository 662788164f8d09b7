package openapi

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// ResolveSchema returns the schema of a built-in kind with all references filled in;
// the caller owns it. The error wraps resolver.ErrSchemaNotFound when no scheme knows
// the kind.
func (m *Models) ResolveSchema(kind schema.GroupVersionKind) (*spec.Schema, error) {
	root := ""
	for _, scheme := range m.schemes {
		if obj, err := scheme.New(kind); err == nil {
			root = util.GetCanonicalTypeName(obj)
			break
		}
	}
	if root == "" {
		return nil, fmt.Errorf("models: %s: %w", kind, resolver.ErrSchemaNotFound)
	}
	var resolved *spec.Schema
	err := m.use(func(d *definitions) error {
		types := make(map[string]string, len(d.byType))
		for path := range d.byType {
			name, _ := d.name(path)
			types["#/components/schemas/"+common.EscapeJsonPointer(name)] = path
		}
		// Callers may read the result while other goroutines write into the definitions.
		copies := map[string]*spec.Schema{}
		copyOf := func(path string) (*spec.Schema, error) {
			if s := copies[path]; s != nil {
				return s, nil
			}
			data, err := json.Marshal(d.byType[path].Schema)
			if err != nil {
				return nil, err
			}
			s := &spec.Schema{}
			copies[path] = s
			return s, json.Unmarshal(data, s)
		}
		var failed error
		var err error
		resolved, err = resolver.PopulateRefs(func(ref string) (*spec.Schema, bool) {
			path := ref
			if strings.HasPrefix(ref, "#") {
				path = types[ref]
			}
			if _, known := d.byType[path]; !known {
				return nil, false
			}
			s, err := copyOf(path)
			if err != nil {
				failed = err
			}
			return s, err == nil
		}, root)
		if failed != nil {
			return failed
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("models: %s: %w", kind, err)
	}
	return resolved, nil
}
