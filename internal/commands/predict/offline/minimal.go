package offline

import (
	_ "embed"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/gatehouse-dev/gatehouse/internal/engine/expression"
)

//go:embed samples.yaml
var sampleText string

// samples are the smallest valid objects of built-in kinds.
var samples = sync.OnceValue(func() map[schema.GroupVersionKind]*unstructured.Unstructured {
	objects, err := Objects("samples.yaml", []byte(sampleText))
	if err != nil {
		panic("lint: " + err.Error())
	}
	list := map[schema.GroupVersionKind]*unstructured.Unstructured{}
	for _, u := range objects {
		list[u.GroupVersionKind()] = u
	}
	return list
})

// setByOthers are fields that admission plugins or the allocators of an API server set, so that nothing is known about
// them.
var setByOthers = map[string][]string{
	"Pod": {
		"spec.volumes", "spec.serviceAccountName", "spec.serviceAccount", "spec.tolerations", "spec.priority", "spec.preemptionPolicy",
		"spec.imagePullSecrets", "spec.nodeSelector", "spec.overhead", "spec.runtimeClassName",
	},
	"Job":                   {"spec.selector", "spec.template.metadata"},
	"Service":               {"spec.clusterIP", "spec.clusterIPs", "spec.ipFamilies", "spec.ipFamilyPolicy", "spec.sessionAffinityConfig"},
	"PersistentVolumeClaim": {"spec.storageClassName", "spec.volumeName", "metadata.finalizers"},
	"Ingress":               {"spec.ingressClassName"},
	"Namespace":             {"spec"},
}

// minimal returns the smallest valid object of a kind that has an object at a path, with the defaults of an API server;
// nil if it is not known. A value that the defaults do not set is unknown.
func (s *survey) minimal(kind schema.GroupVersionKind, at ...string) *expression.Partial {
	given := samples()[kind]
	var defaulted map[string]any
	if given != nil {
		named := given.DeepCopy()
		named.SetName("example")
		if !put(named.Object, at) {
			return nil
		}
		object, err := Decode(named)
		if err != nil {
			return nil
		}
		shown, err := written(object, kind)
		if err != nil {
			return nil
		}
		defaulted = shown.Object
	} else {
		made := s.schema(kind)
		if _, custom := s.definedAs(kind); !custom || made == nil || len(at) > 0 {
			return nil
		}
		content, _ := required(made, true).(map[string]any)
		if _, ok := content["spec"]; content != nil && !ok && len(made.Properties["spec"].Properties) > 0 {
			spec := made.Properties["spec"]
			content["spec"] = required(&spec, false)
		}
		given = &unstructured.Unstructured{Object: content}
		defaulted = content
	}
	// Only the values of defaults are known.
	p := partial(defaulted, given.Object, "", setByOthers[kind.Kind])
	metadata, _ := p.Fields["metadata"].(*expression.Partial)
	if metadata == nil {
		metadata = &expression.Partial{Fields: map[string]any{}}
	}
	metadata.Closed = false
	for name, value := range metadata.Fields {
		labels, ok := value.(*expression.Partial)
		if name != "labels" || !ok {
			delete(metadata.Fields, name)
			continue
		}
		for key := range labels.Fields {
			labels.Fields[key] = expression.Unknown
		}
	}
	for _, name := range []string{"labels", "annotations", "ownerReferences", "finalizers", "deletionTimestamp"} {
		if _, known := metadata.Fields[name]; !known && !slices.Contains(setByOthers[kind.Kind], "metadata."+name) {
			metadata.Fields[name] = expression.Absent
		}
	}
	maps.Copy(p.Fields, map[string]any{
		"metadata": metadata, "status": expression.Unknown, "kind": kind.Kind, "apiVersion": kind.GroupVersion().String(),
	})
	return p
}

// put adds an empty object at a path, if there is none; ok is false if the path leads into another value or out of a list.
func put(content any, at []string) (ok bool) {
	for _, step := range at {
		switch in := content.(type) {
		case map[string]any:
			if in[step] == nil {
				in[step] = map[string]any{}
			}
			content = in[step]
		case []any:
			n, err := strconv.Atoi(step)
			if err != nil || n >= len(in) {
				return false
			}
			content = in[n]
		}
	}
	_, ok = content.(map[string]any)
	return ok
}

// partial returns the known part of an object with defaults. given is the object without defaults.
func partial(content, given map[string]any, at string, open []string) *expression.Partial {
	p := &expression.Partial{Closed: true, Fields: map[string]any{}}
	for name, value := range content {
		written, was := given[name]
		switch value := value.(type) {
		case map[string]any:
			below, _ := written.(map[string]any)
			p.Fields[name] = partial(value, below, at+name+".", open)
		case []any:
			p.Fields[name] = value
		default:
			if p.Fields[name] = value; was {
				p.Fields[name] = expression.Unknown
			}
		}
	}
	for _, path := range open {
		if name, below := strings.CutPrefix(path, at); below && !strings.Contains(name, ".") {
			p.Fields[name] = expression.Unknown
		}
	}
	return p
}

// required returns an object of a CRD's schema with the required fields, whose values count as unknown, and with the
// fields that have defaults.
func required(s *spec.Schema, root bool) any {
	switch {
	case s.Default != nil:
		return runtime.DeepCopyJSONValue(s.Default)
	case len(s.Properties) == 0:
		if len(s.Type) == 1 && s.Type[0] == "array" {
			return []any{"any"}
		}
		return expression.Unknown
	}
	content := map[string]any{}
	for name := range s.Properties {
		property := s.Properties[name]
		if slices.Contains(s.Required, name) || property.Default != nil {
			content[name] = required(&property, false)
		}
	}
	if root {
		delete(content, "metadata")
	}
	return content
}

// definedAs returns the CRD of a kind.
func (s *survey) definedAs(kind schema.GroupVersionKind) (*unstructured.Unstructured, bool) {
	for _, u := range s.definitions {
		group, _, _ := unstructured.NestedString(u.Object, "spec", "group")
		name, _, _ := unstructured.NestedString(u.Object, "spec", "names", "kind")
		if kind.Group == group && kind.Kind == name {
			return u, true
		}
	}
	return nil, false
}
