package crdschema

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// maxDepth bounds the depth of a JSON schema with its references replaced, and maxNodes the number of its parts.
const (
	maxDepth = 100
	maxNodes = 200_000
)

// converter converts one JSON schema.
type converter struct {
	root map[string]any
	// closed reports whether the schema forbids additional properties where it means that. Other generators never do.
	closed bool
	nodes  int
}

// FromJSONSchema converts the JSON schema of a kind to the schema of a CRD. Parts that a CRD cannot express become parts
// that allow anything. It returns nil if data is not a JSON schema of an object.
func FromJSONSchema(data []byte) map[string]any {
	var root map[string]any
	if json.Unmarshal(data, &root) != nil {
		return nil
	}
	if of, typed := root["type"]; typed && of != "object" || !typed && root["properties"] == nil {
		return nil
	}
	c := &converter{root: root, closed: closes(root, 0)}
	out := c.node(root, 0)
	out["type"] = "object"
	delete(out, "nullable")
	properties, _ := out["properties"].(map[string]any)
	for name, of := range map[string]string{"apiVersion": "string", "kind": "string", "metadata": "object"} {
		if properties != nil {
			properties[name] = map[string]any{"type": of}
		}
	}
	return out
}

// closes reports whether a schema forbids additional properties anywhere.
func closes(value any, depth int) bool {
	if depth > maxDepth {
		return false
	}
	switch v := value.(type) {
	case map[string]any:
		if v["additionalProperties"] == false {
			return true
		}
		for _, inner := range v {
			if closes(inner, depth+1) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, func(inner any) bool { return closes(inner, depth+1) })
	}
	return false
}

// anyValue returns the schema of any value.
func anyValue() map[string]any { return map[string]any{"x-kubernetes-preserve-unknown-fields": true} }

// kept are the keywords with the same meaning in a CRD.
var kept = []string{"format", "default", "maximum", "minimum", "maxLength", "minLength", "pattern", "maxItems", "minItems", "multipleOf", "enum", "maxProperties", "minProperties", "required", "nullable"}

// node converts a part of a schema.
func (c *converter) node(value any, depth int) map[string]any {
	in, ok := value.(map[string]any)
	if c.nodes++; !ok || depth > maxDepth || c.nodes > maxNodes {
		return anyValue()
	}
	if ref, ok := in["$ref"].(string); ok {
		return c.node(c.resolve(ref), depth+1)
	}
	out := map[string]any{}
	for _, key := range kept {
		if v, ok := in[key]; ok {
			out[key] = v
		}
	}
	for key, v := range in {
		if strings.HasPrefix(key, "x-kubernetes-") && key != "x-kubernetes-group-version-kind" {
			out[key] = v
		}
	}
	if v, ok := in["const"]; ok {
		out["enum"] = []any{v}
	}
	types := typesOf(in)
	if i := slices.Index(types, "null"); i >= 0 {
		types, out["nullable"] = slices.Delete(types, i, i+1), true
	}
	switch {
	case in["x-kubernetes-int-or-string"] == true || slices.Contains(types, "string") && (slices.Contains(types, "integer") || slices.Contains(types, "number")) && len(types) == 2:
		out["x-kubernetes-int-or-string"] = true
		return out
	case len(types) == 1:
		out["type"] = types[0]
	case len(types) > 1:
		return anyValue()
	case in["properties"] != nil:
		out["type"] = "object"
	case in["items"] != nil:
		out["type"] = "array"
	default:
		return anyValue()
	}
	switch out["type"] {
	case "object":
		c.object(in, out, depth)
	case "array":
		out["items"] = c.node(in["items"], depth+1)
	}
	c.junctors(in, out)
	return out
}

// typesOf returns the types that a part of a schema allows. Generators write an integer or a string as alternatives.
func typesOf(in map[string]any) (types []string) {
	switch of := in["type"].(type) {
	case string:
		return []string{of}
	case []any:
		for _, t := range of {
			if name, ok := t.(string); ok && !slices.Contains(types, name) {
				types = append(types, name)
			}
		}
		return types
	}
	for _, key := range []string{"anyOf", "oneOf"} {
		list, _ := in[key].([]any)
		for _, one := range list {
			branch, _ := one.(map[string]any)
			name, ok := branch["type"].(string)
			if !ok {
				return nil
			}
			types = append(types, name)
		}
		if len(types) > 0 {
			return types
		}
	}
	return nil
}

// object converts the members of an object.
func (c *converter) object(in, out map[string]any, depth int) {
	properties, _ := in["properties"].(map[string]any)
	if len(properties) > 0 {
		made := map[string]any{}
		for _, name := range slices.Sorted(maps.Keys(properties)) {
			made[name] = c.node(properties[name], depth+1)
		}
		out["properties"] = made
	}
	switch additional := in["additionalProperties"].(type) {
	case bool:
		if additional {
			out["x-kubernetes-preserve-unknown-fields"] = true
		}
	case map[string]any:
		if len(properties) == 0 {
			out["additionalProperties"] = c.node(additional, depth+1)
		} else {
			out["x-kubernetes-preserve-unknown-fields"] = true
		}
	default:
		if len(properties) == 0 || c.closed && depth > 0 {
			out["x-kubernetes-preserve-unknown-fields"] = true
		}
	}
}

// junctors keeps the alternatives of a schema that only require members that it has. Others are left out.
func (c *converter) junctors(in, out map[string]any) {
	properties, _ := out["properties"].(map[string]any)
	for _, key := range []string{"allOf", "anyOf", "oneOf"} {
		list, _ := in[key].([]any)
		var made []any
		for _, one := range list {
			branch, _ := one.(map[string]any)
			required, _ := branch["required"].([]any)
			if len(required) == 0 || len(branch) != 1 || slices.ContainsFunc(required, func(name any) bool {
				text, _ := name.(string)
				return properties[text] == nil
			}) {
				made = nil
				break
			}
			made = append(made, map[string]any{"required": required})
		}
		if len(made) > 0 {
			out[key] = made
		}
	}
}

// resolve returns the part of the schema that a local reference names; nil if there is none.
func (c *converter) resolve(ref string) any {
	path, ok := strings.CutPrefix(ref, "#/")
	if !ok {
		return nil
	}
	var at any = c.root
	for step := range strings.SplitSeq(path, "/") {
		members, ok := at.(map[string]any)
		if !ok {
			return nil
		}
		at = members[strings.NewReplacer("~1", "/", "~0", "~").Replace(step)]
	}
	return at
}
