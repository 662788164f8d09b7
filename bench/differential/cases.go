package main

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// namespace contains the objects of namespaced kinds.
const namespace = "differential"

//go:embed cases known.yaml webhooks.yaml
var files embed.FS

// kind is one document of cases/kinds.
type kind struct {
	// Resource is the plural, as in paths.
	Resource string `json:"resource"`
	// ClusterScoped kinds have no namespace.
	ClusterScoped bool `json:"clusterScoped"`
	// Name is set if names of the kind need a special form. By default, a common name is used.
	Name string `json:"name"`
	// Object is valid.
	Object map[string]any `json:"object"`
	// Invalid and Updates are merge patches onto Object: changes that make it invalid at creation, and updates with
	// any outcome.
	Invalid []map[string]any `json:"invalid"`
	Updates []map[string]any `json:"updates"`
	// Status is written through the status subresource.
	Status map[string]any `json:"status"`
	// Async reports whether controllers inside the server change objects of the kind after a write.
	Async bool `json:"async"`
}

func (k kind) version() schema.GroupVersion {
	gv, err := schema.ParseGroupVersion(k.Object["apiVersion"].(string))
	if err != nil {
		panic(err)
	}
	return gv
}

// path returns the path of the collection.
func (k kind) path() string {
	gv := k.version()
	path := "/apis/" + gv.String()
	if gv.Group == "" {
		path = "/api/" + gv.Version
	}
	if !k.ClusterScoped {
		path += "/namespaces/" + namespace
	}
	return path + "/" + k.Resource
}

// script is one document of cases/scripts.yaml.
type script struct {
	Name     string `json:"name"`
	Requests []struct {
		// Do is the method and the path.
		Do     string `json:"do"`
		Type   string `json:"type"`
		Accept string `json:"accept"`
		As     string `json:"as"`
		// Body is JSON or a text. In a text, <TEXT×N> is TEXT, N times.
		Body  any  `json:"body"`
		Async bool `json:"async"`
	} `json:"requests"`
}

func loadKinds() ([]kind, error) {
	var kinds []kind
	err := fs.WalkDir(files, "cases/kinds", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		some, err := documents[kind](path)
		kinds = append(kinds, some...)
		return err
	})
	return kinds, err
}

func loadScripts() ([]script, error) { return documents[script]("cases/scripts.yaml") }

// documents decodes every document of an embedded YAML file, strictly. It replaces {ns} by the namespace, except in
// files whose cases have their own namespaces.
func documents[T any](path string) ([]T, error) {
	data, err := files.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(path, policyCases) && !strings.HasPrefix(path, pluginCases) {
		data = bytes.ReplaceAll(data, []byte("{ns}"), []byte(namespace))
	}
	var all []T
	reader := utilyaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(data)))
	defer reader.Close()
	buffer := make([]byte, len(data)+1)
	for {
		n, err := reader.Read(buffer)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		var one T
		if err := yaml.UnmarshalStrict(buffer[:n], &one); err != nil {
			return nil, fmt.Errorf("%s, document %d: %w", path, len(all)+1, err)
		}
		all = append(all, one)
	}
}

// merge applies a merge patch to a copy of an object.
func merge(object, patch map[string]any) map[string]any {
	out := make(map[string]any, len(object))
	for k, v := range object {
		out[k] = v
	}
	for k, v := range patch {
		change, isMap := v.(map[string]any)
		before, wasMap := out[k].(map[string]any)
		switch {
		case v == nil:
			delete(out, k)
		case isMap && wasMap:
			out[k] = merge(before, change)
		case isMap:
			out[k] = merge(nil, change)
		default:
			out[k] = v
		}
	}
	return out
}

func splitDo(do string) (method, path string, err error) {
	method, path, ok := strings.Cut(do, " ")
	if !ok || !strings.HasPrefix(path, "/") {
		return "", "", fmt.Errorf("%q is not a method and a path", do)
	}
	return method, path, nil
}
