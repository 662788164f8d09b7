package mutation_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
	celmutation "k8s.io/apiserver/pkg/cel/mutation"
	applyconfigurations "k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/gatehouse-dev/gatehouse/internal/engine/mutation"
)

// language is the CEL environment of mutations. Its one variable is object.
var language = func() *cel.Env {
	set, err := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions: []cel.EnvOption{
			cel.Variable("object", cel.DynType),
			common.ResolverEnvOption(&celmutation.DynamicTypeResolver{}),
			environment.UnversionedLib(library.JSONPatch),
		},
	})
	if err != nil {
		panic(err)
	}
	return set.StoredExpressionsEnv()
}()

// results are the types that expressions must have.
var results = map[mutation.Type]*cel.Type{
	mutation.ApplyConfiguration: cel.ObjectType("Object"),
	mutation.JSONPatch:          cel.ListType(cel.ObjectType("JSONPatch")),
}

// evaluate returns the Change of an expression.
func evaluate(t mutation.Type, expression string, object any) (*mutation.Change, error) {
	env := language
	checked, issues := env.Compile(expression)
	if issues != nil {
		return nil, fmt.Errorf("compilation failed: %s", issues)
	}
	if got := checked.OutputType(); !got.IsExactType(results[t]) {
		return nil, fmt.Errorf("must evaluate to %v but got %v", results[t], got)
	}
	program, err := env.Program(checked)
	if err != nil {
		return nil, err
	}
	var value ref.Val
	if value, _, err = program.Eval(map[string]any{"object": types.DefaultTypeAdapter.NativeToValue(object)}); err != nil {
		return nil, err
	}
	return mutation.NewChange(t, value)
}

// content decodes an object in the server's form of a custom object.
func content(t testing.TB, text string) map[string]any {
	t.Helper()
	var out map[string]any
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&out); err != nil {
		t.Fatal(err)
	}
	return integers(out).(map[string]any)
}

func integers(v any) any {
	switch v := v.(type) {
	case json.Number:
		if i, err := v.Int64(); err == nil {
			return i
		}
		f, err := v.Float64()
		if err != nil {
			panic(err)
		}
		return f
	case map[string]any:
		for k, e := range v {
			v[k] = integers(e)
		}
	case []any:
		for i, e := range v {
			v[i] = integers(e)
		}
	}
	return v
}

// unstructuredObject is a custom object.
type unstructuredObject = unstructured.Unstructured

// schemas has the built-in kinds and one custom kind.
type schemas struct {
	builtin, custom managedfields.TypeConverter
}

var widget = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}

func (s schemas) TypeConverter(kind schema.GroupVersionKind) managedfields.TypeConverter {
	switch {
	case kind == widget:
		return s.custom
	case scheme.Scheme.Recognizes(kind):
		return s.builtin
	}
	return nil
}

// known has the schemas for all tests.
var known = func() schemas {
	var definitions map[string]*spec.Schema
	if err := json.Unmarshal([]byte(widgetSchema), &definitions); err != nil {
		panic(err)
	}
	custom, err := managedfields.NewTypeConverter(definitions, false)
	if err != nil {
		panic(err)
	}
	return schemas{applyconfigurations.NewTypeConverter(scheme.Scheme), custom}
}()

// widgetSchema is an OpenAPI schema as in a CustomResourceDefinition.
const widgetSchema = `{"com.example.v1.Widget": {
	"type": "object",
	"x-kubernetes-group-version-kind": [{"group": "example.com", "version": "v1", "kind": "Widget"}],
	"properties": {
		"apiVersion": {"type": "string"}, "kind": {"type": "string"},
		"metadata": {"type": "object", "properties": {
			"name": {"type": "string"},
			"labels": {"type": "object", "additionalProperties": {"type": "string"}},
			"finalizers": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}
		}},
		"spec": {"type": "object", "properties": {
			"size": {"type": "integer"},
			"ratio": {"type": "number"},
			"name": {"type": "string"},
			"plainList": {"type": "array", "items": {"type": "string"}},
			"sockets": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
				"items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "port": {"type": "integer"}}}},
			"parts": {"type": "object", "additionalProperties": {"type": "object", "properties": {
				"count": {"type": "integer"},
				"whole": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}
			}}},
			"anything": {"x-kubernetes-preserve-unknown-fields": true},
			"free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}
		}}
	}
}}`
