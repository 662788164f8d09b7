// Package fieldrequests generates a request for each field of the built-in kinds and for each CEL function.
package fieldrequests

import (
	"encoding/json"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/bench/internal/celcalls"
)

// Request is a request: a create in the namespace default, sent as a dry run.
type Request struct {
	// Title has the kind and the field, or the call of the function; Path is the path of the collection.
	Title, Path string
	Object      map[string]any
}

// For returns requests for the kinds that a server serves: for each field of the newest types an object with the field,
// in the first kind that has the type, and for each CEL function a policy and a CRD that call it.
func For(config *rest.Config) (requests []Request, err error) {
	lists, err := Served(config)
	if err != nil {
		return nil, err
	}
	if err := apiextensionsv1.AddToScheme(scheme.Scheme); err != nil {
		return nil, err
	}
	slices.SortFunc(lists, func(a, b *metav1.APIResourceList) int { return strings.Compare(a.GroupVersion, b.GroupVersion) })
	f := fielder{seen: map[string]int{}}
	at := map[string]string{}
	for _, list := range lists {
		for _, r := range list.APIResources {
			if strings.Contains(r.Name, "/") || !slices.Contains(r.Verbs, "create") {
				continue
			}
			root := path.Join("/apis", list.GroupVersion)
			if !strings.Contains(list.GroupVersion, "/") {
				root = "/api/" + list.GroupVersion
			}
			if r.Namespaced {
				root += "/namespaces/default"
			}
			at[r.Kind] = root + "/" + r.Name
			typed, err := scheme.Scheme.New(schema.FromAPIVersionAndKind(list.GroupVersion, r.Kind))
			if err != nil {
				continue
			}
			f.each(reflect.TypeOf(typed).Elem(), nil, func(field []string, value any) {
				object := map[string]any{"metadata": map[string]any{"name": "a"}}
				put(object, field, value)
				object["apiVersion"], object["kind"] = list.GroupVersion, r.Kind
				requests = append(requests, Request{list.GroupVersion + " " + r.Kind + " " + strings.Join(field, "."), at[r.Kind], object})
			})
		}
	}
	calls := celcalls.Expressions()
	for _, call := range slices.Sorted(maps.Keys(calls)) {
		requests = append(requests,
			Request{"policy " + call, at["ValidatingAdmissionPolicy"], celcalls.Policy("a", calls[call])},
			Request{"definition " + call, at["CustomResourceDefinition"], ruled(strings.ReplaceAll(calls[call], "object", "self"))})
	}
	return requests, nil
}

// Served lists the resources of a server by version. It fails if the server cannot list the resources of a version.
func Served(config *rest.Config) ([]*metav1.APIResourceList, error) {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	_, lists, err := client.ServerGroupsAndResources()
	return lists, err
}

// ruled returns a CRD with a rule.
func ruled(rule string) map[string]any {
	return map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "as.example.com"},
		"spec": map[string]any{
			"group": "example.com", "scope": "Namespaced", "names": map[string]any{"plural": "as", "kind": "A"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": map[string]any{
				"type": "object", "properties": map[string]any{"a": map[string]any{
					"type": "string", "maxLength": 5, "x-kubernetes-validations": []any{map[string]any{"rule": rule}},
				}},
			}}}},
		},
	}
}

// fielder finds the fields of types.
type fielder struct{ seen map[string]int }

// often is the number of kinds in which a field is tried.
const often = 2

// each calls found with the path and a value of each field that was not yet tried often.
func (f fielder) each(of reflect.Type, at []string, found func([]string, any)) {
	for i := range of.NumField() {
		field := of.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		inner := field.Type
		if name == "" && strings.Contains(options, "inline") || field.Anonymous && name == "" {
			if inner.Kind() == reflect.Struct && inner != reflect.TypeFor[metav1.TypeMeta]() {
				f.each(inner, at, found)
			}
			continue
		}
		if name == "" || name == "-" || len(at) > 12 {
			continue
		}
		here := append(slices.Clone(at), name)
		if key := of.PkgPath() + of.Name() + "." + name; f.seen[key] < often {
			f.seen[key]++
			found(here, valueOf(inner))
		}
		steps := here
		for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice || inner.Kind() == reflect.Map {
			switch inner.Kind() {
			case reflect.Slice:
				steps = append(slices.Clone(steps), "[]")
			case reflect.Map:
				steps = append(slices.Clone(steps), "a")
			}
			inner = inner.Elem()
		}
		if key := inner.PkgPath() + inner.Name(); inner.Kind() == reflect.Struct && !opaque(inner) && f.seen[key] < often {
			f.seen[key]++
			f.each(inner, steps, found)
		}
	}
}

// opaque reports whether a type has its own JSON encoding, independent of its fields.
func opaque(of reflect.Type) bool {
	return reflect.PointerTo(of).Implements(reflect.TypeFor[json.Marshaler]())
}

// valueOf returns a value of a type.
func valueOf(of reflect.Type) any {
	switch of {
	case reflect.TypeFor[resource.Quantity](), reflect.TypeFor[intstr.IntOrString]():
		return 1
	case reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.MicroTime]():
		return "2026-01-01T00:00:00.000000Z"
	case reflect.TypeFor[metav1.Duration]():
		return "1s"
	case reflect.TypeFor[runtime.RawExtension](), reflect.TypeFor[metav1.FieldsV1]():
		return map[string]any{}
	}
	switch of.Kind() {
	case reflect.Pointer:
		return valueOf(of.Elem())
	case reflect.Slice:
		if of.Elem().Kind() == reflect.Uint8 {
			return "YQ=="
		}
		return []any{valueOf(of.Elem())}
	case reflect.Map:
		return map[string]any{"a": valueOf(of.Elem())}
	case reflect.String:
		return "a"
	case reflect.Bool:
		return true
	case reflect.Struct:
		return map[string]any{}
	}
	return 1
}

// put puts a value at a path of names, in which [] is the only element of a list.
func put(into map[string]any, at []string, value any) {
	name, rest := at[0], at[1:]
	lists := 0
	for len(rest) > 0 && rest[0] == "[]" {
		lists, rest = lists+1, rest[1:]
	}
	if len(rest) > 0 {
		inner, ok := into[name].(map[string]any)
		if !ok || lists > 0 {
			inner = map[string]any{}
		}
		put(inner, rest, value)
		value = inner
	}
	for range lists {
		value = []any{value}
	}
	into[name] = value
}
