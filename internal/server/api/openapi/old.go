package openapi

import (
	"encoding/json"
	"fmt"
	"strings"

	handler2 "k8s.io/kube-openapi/pkg/handler"
)

// encodeOld returns the protobuf of an OpenAPI v2 document that kubectl 1.8 and 1.9 can read
// (S9.8). These parse a "type: object" as a map, which must have additionalProperties, and reject
// every value of a field without a type.
//
// Source: Kubernetes 1.8, pkg/kubectl/cmd/util/openapi: Definitions.ParseSchema.
func encodeOld(document []byte) ([]byte, error) {
	var swagger map[string]any
	if err := json.Unmarshal(document, &swagger); err != nil {
		return nil, fmt.Errorf("reading the document: %w", err)
	}
	definitions, _ := swagger["definitions"].(map[string]any)
	for name, definition := range definitions {
		if s, ok := definition.(map[string]any); ok {
			makeOld(s, name)
		}
	}
	document, err := json.Marshal(swagger)
	if err != nil {
		return nil, err
	}
	return handler2.ToProtoBinary(document)
}

// makeOld changes a schema, below the definition of that name.
func makeOld(s map[string]any, name string) {
	if all, _ := s["allOf"].([]any); len(all) == 1 {
		if one, _ := all[0].(map[string]any); one["$ref"] != nil {
			s["$ref"] = one["$ref"]
		}
	}
	for _, field := range []string{"allOf", "anyOf", "oneOf", "not"} {
		delete(s, field)
	}
	if s["$ref"] != nil {
		delete(s, "type")
		delete(s, "properties")
		return
	}
	properties, _ := s["properties"].(map[string]any)
	if len(properties) > 0 {
		delete(s, "type")
		delete(s, "additionalProperties")
		for _, property := range properties {
			if p, ok := property.(map[string]any); ok {
				makeOld(p, name)
			}
		}
		return
	}
	delete(s, "properties")
	anything := map[string]any{"type": "string"}
	switch s["type"] {
	case "object":
		below, ok := s["additionalProperties"].(map[string]any)
		switch {
		case ok:
			makeOld(below, name)
		case strings.HasSuffix(name, ".FieldsV1"):
			// The keys of managed fields lead to maps only.
			s["additionalProperties"] = map[string]any{"$ref": "#/definitions/" + name}
		default:
			s["additionalProperties"] = anything
		}
	case "array":
		if items, ok := s["items"].(map[string]any); ok {
			makeOld(items, name)
		} else {
			s["items"] = anything
		}
	case "string", "number", "integer", "boolean":
	default:
		// kubectl treats a value of any simple type as a string.
		s["type"] = "string"
	}
}
