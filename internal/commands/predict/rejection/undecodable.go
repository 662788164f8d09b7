package rejection

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/gatehouse-dev/gatehouse/internal/kit/emulation"
)

// Undecodable returns the path of the first field of an object whose value a decoder rejects, such as a wrong type or a
// bad quantity; empty if there is none. Errors of decoders name no indexes of lists and no keys of maps, or no field at
// all. Only the metadata of custom resources is decoded.
func Undecodable(content map[string]any) string {
	version, _ := content["apiVersion"].(string)
	name, _ := content["kind"].(string)
	of := typeOf(schema.FromAPIVersionAndKind(version, name))
	if of == nil {
		of = reflect.TypeFor[struct {
			metav1.ObjectMeta `json:"metadata"`
		}]()
	}
	return undecodable(content, of, "")
}

// undecodable returns the path of a value, or of a value below it, that its type cannot have.
func undecodable(value any, of reflect.Type, path string) string {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	if value == nil {
		return ""
	}
	_, decodes := reflect.New(of).Interface().(json.Unmarshaler)
	switch members, object := value.(map[string]any); {
	case !decodes && object && (of.Kind() == reflect.Struct || of.Kind() == reflect.Map):
		types := map[string]reflect.Type{}
		if of.Kind() == reflect.Struct {
			types = emulation.Members(of)
		}
		for _, name := range slices.Sorted(maps.Keys(members)) {
			inner := types[name]
			if of.Kind() == reflect.Map {
				inner = of.Elem()
			}
			if inner == nil {
				continue
			}
			if found := undecodable(members[name], inner, below(path, name)); found != "" {
				return found
			}
		}
		return ""
	case !decodes && of.Kind() == reflect.Slice:
		list, ok := value.([]any)
		for i, element := range list {
			if found := undecodable(element, of.Elem(), path+"["+strconv.Itoa(i)+"]"); found != "" {
				return found
			}
		}
		if ok {
			return ""
		}
	}
	data, err := json.Marshal(value)
	if err == nil {
		err = utiljson.Unmarshal(data, reflect.New(of).Interface())
	}
	if err != nil {
		return path
	}
	return ""
}

// below returns the path of a member.
func below(path, name string) string {
	switch {
	case strings.ContainsAny(name, "./[]"):
		return path + "[" + name + "]"
	case path == "":
		return name
	}
	return path + "." + name
}
