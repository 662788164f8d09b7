package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	kubeconform "github.com/yannh/kubeconform/pkg/resource"
	"github.com/yannh/kubeconform/pkg/validator"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// schemaVerdict is the result of schema validation for an object.
type schemaVerdict int

const (
	schemaMissing schemaVerdict = iota
	schemaPasses
	schemaRefuses
)

// schemas validates the objects of a set with kubeconform, strictly, against the schemas of the server, custom
// resources included.
func (k *kubeAPIServer) schemas(ctx context.Context, s *set) (map[string]schemaVerdict, error) {
	data, err := k.client.RESTClient().Get().AbsPath("/openapi/v2").SetHeader("Accept", "application/json").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("schemas: %w", err)
	}
	dir := filepath.Join(k.dir, "schemas")
	if err := writeSchemas(data, dir); err != nil {
		return nil, fmt.Errorf("schemas: %w", err)
	}
	v, err := validator.New([]string{filepath.Join(dir, "{{ .ResourceKind }}{{ .KindSuffix }}.json")}, validator.Opts{Strict: true, IgnoreMissingSchemas: true})
	if err != nil {
		return nil, err
	}
	verdicts := map[string]schemaVerdict{}
	for i, o := range s.objects {
		text, err := json.Marshal(o.content)
		if err != nil {
			return nil, err
		}
		switch result := v.ValidateResource(kubeconform.Resource{Path: fileOf(i), Bytes: text}); result.Status {
		case validator.Valid:
			verdicts[fileOf(i)] = schemaPasses
		case validator.Invalid, validator.Error:
			verdicts[fileOf(i)] = schemaRefuses
		}
	}
	return verdicts, nil
}

// writeSchemas writes a JSON schema for each kind of an OpenAPI document, in the form that kubeconform expects:
// unknown fields are invalid, and optional values may be null.
func writeSchemas(document []byte, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var openAPI struct {
		Definitions map[string]map[string]any
	}
	if err := json.Unmarshal(document, &openAPI); err != nil {
		return err
	}
	for name, definition := range openAPI.Definitions {
		if strings.HasSuffix(name, ".api.resource.Quantity") {
			openAPI.Definitions[name] = map[string]any{"type": []string{"string", "number", "null"}}
			continue
		}
		strict(definition)
		definition["type"] = nullable(definition["type"])
		if definition["type"] == nil {
			delete(definition, "type")
		}
	}
	shared, err := json.Marshal(map[string]any{"definitions": openAPI.Definitions})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "_definitions.json"), shared, 0o644); err != nil {
		return err
	}
	for name, definition := range openAPI.Definitions {
		kinds, _ := definition["x-kubernetes-group-version-kind"].([]any)
		for _, k := range kinds {
			kind, _ := k.(map[string]any)
			group, _, _ := strings.Cut(fmt.Sprint(kind["group"]), ".")
			suffix := "-" + fmt.Sprint(kind["version"])
			if group != "" {
				suffix = "-" + group + suffix
			}
			file := strings.ToLower(fmt.Sprint(kind["kind"])+suffix) + ".json"
			text, err := json.Marshal(map[string]any{"$ref": "_definitions.json#/definitions/" + name})
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, file), text, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// strict turns an OpenAPI schema into a JSON schema that rejects unknown fields.
func strict(schema map[string]any) {
	if schema["format"] == "int-or-string" || schema["x-kubernetes-int-or-string"] == true {
		schema["type"] = []string{"string", "integer", "null"}
	}
	// JSON schema does not have the formats of OpenAPI.
	delete(schema, "format")
	properties, _ := schema["properties"].(map[string]any)
	if properties != nil && schema["additionalProperties"] == nil && schema["x-kubernetes-preserve-unknown-fields"] != true {
		schema["additionalProperties"] = false
	}
	for _, p := range properties {
		if property, ok := p.(map[string]any); ok {
			strict(property)
			property["type"] = nullable(property["type"])
			if property["type"] == nil {
				delete(property, "type")
			}
		}
	}
	for _, field := range []string{"items", "additionalProperties"} {
		if inner, ok := schema[field].(map[string]any); ok {
			strict(inner)
		}
	}
}

// nullable returns a type that also allows null.
func nullable(t any) any {
	switch t := t.(type) {
	case string:
		return []string{t, "null"}
	case []string:
		if !slices.Contains(t, "null") {
			return append(t, "null")
		}
		return t
	}
	return nil
}

func serviceAccount(namespace string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceDefault, Namespace: namespace}}
}

// zero returns a usage of zero for each resource of a quota.
func zero(hard corev1.ResourceList) corev1.ResourceList {
	used := corev1.ResourceList{}
	for name := range hard {
		used[name] = resource.MustParse("0")
	}
	return used
}
