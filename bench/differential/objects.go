package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
)

// writeObjects writes the objects of the cases as manifests, for programs that compare messages about them. Each set
// of objects that can be applied together gets a directory, and each case a file in it.
func writeObjects(dir string) error {
	kinds, err := loadKinds()
	if err != nil {
		return err
	}
	write := func(set, name string, objects []map[string]any) error {
		if err := os.MkdirAll(filepath.Join(dir, set), 0o755); err != nil {
			return err
		}
		var text strings.Builder
		for _, object := range objects {
			data, err := json.MarshalIndent(object, "", "  ")
			if err != nil {
				return err
			}
			fmt.Fprintf(&text, "---\n%s\n", data)
		}
		return os.WriteFile(filepath.Join(dir, set, name+".yaml"), []byte(text.String()), 0o644)
	}
	for i, k := range kinds {
		for n, object := range append([]map[string]any{k.Object}, invalidObjects(k)...) {
			set, ns, name := 0, fmt.Sprintf("kind-%03d-%02d", i, n), fmt.Sprintf("%s-%02d", commonName, n)
			if k.Name != "" {
				name = k.Name
			}
			objects := namespaceObjects(ns)[:1]
			metadata := map[string]any{"name": name, "namespace": ns}
			if k.ClusterScoped {
				objects, metadata = nil, map[string]any{"name": name}
				if k.Name != "" {
					// Two objects with the same name cannot be in one set.
					set = n
				}
			}
			objects = append(objects, merge(map[string]any{"metadata": metadata}, object))
			file := fmt.Sprintf("%03d-%02d-%s-%s", i, n, strings.ReplaceAll(k.version().String(), "/", "-"), k.Resource)
			if err := write(fmt.Sprintf("kinds-%02d", set), file, objects); err != nil {
				return err
			}
		}
	}
	cases, fixtures, err := loadPolicies()
	if err != nil {
		return err
	}
	if err := write("policies", "fixtures", append(namespaceObjects(markers)[:1], fixtures...)); err != nil {
		return err
	}
	for i, c := range cases {
		objects, err := c.objects(fmt.Sprintf("case-%03d", i))
		if err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
		if err := write("policies", fmt.Sprintf("%03d", i), objects); err != nil {
			return err
		}
	}
	return nil
}

func invalidObjects(k kind) []map[string]any {
	list := make([]map[string]any, len(k.Invalid))
	for i, change := range k.Invalid {
		list[i] = merge(k.Object, change)
	}
	return list
}

// kindsOf maps the short names of collections in cases to their kinds.
var kindsOf = map[string][2]string{
	"{cm}": {"v1", "ConfigMap"}, "{secrets}": {"v1", "Secret"}, "{pods}": {"v1", "Pod"}, "{svc}": {"v1", "Service"},
	"{deploy}": {"apps/v1", "Deployment"}, "{widgets}": {"policies.example.com/v1", "Widget"},
}

// objects returns the objects that a case creates, in one namespace. Unlike in the comparison, the policies of all
// cases are active at the same time: their names are made unique, and their bindings select only the namespace.
func (c policyCase) objects(ns string) ([]map[string]any, error) {
	made := map[string][2]string{}
	for _, r := range c.Requests {
		method, path, err := splitDo(strings.Replace(r.Do, " {", " /{", 1))
		if err != nil {
			return nil, err
		}
		body, ok := r.Body.(map[string]any)
		kind, known := kindsOf[strings.TrimPrefix(path, "/")]
		if method == "POST" && ok && known && r.As == "" && made[nameOf(body)] == [2]string{} {
			made[nameOf(body)] = kind
		}
	}
	filled, err := c.in(ns)
	if err != nil {
		return nil, err
	}
	objects := append(namespaceObjects(ns)[:1], filled.Given...)
	rename := func(object map[string]any, of ...string) map[string]any {
		data, err := json.Marshal(object)
		if err != nil {
			panic(err)
		}
		out := map[string]any{}
		if err := json.Unmarshal(data, &out); err != nil {
			panic(err)
		}
		parent := out
		for _, field := range of[:len(of)-1] {
			parent, _ = parent[field].(map[string]any)
		}
		if name := text(parent[of[len(of)-1]]); name != "" {
			parent[of[len(of)-1]] = ns + "-" + name
		}
		return out
	}
	for _, p := range filled.Policies {
		objects = append(objects, rename(p, "metadata", "name"))
	}
	for _, b := range filled.Bindings {
		b = rename(rename(b, "metadata", "name"), "spec", "policyName")
		spec := b["spec"].(map[string]any)
		match, _ := spec["matchResources"].(map[string]any)
		if match["namespaceSelector"] == nil {
			match = maps.Clone(match)
			if match == nil {
				match = map[string]any{}
			}
			match["namespaceSelector"] = map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": ns}}
			spec["matchResources"] = match
		}
		objects = append(objects, b)
	}
	seen := map[string]bool{}
	for _, r := range filled.Requests {
		body, ok := r.Body.(map[string]any)
		kind := made[nameOf(body)]
		if !ok || kind == [2]string{} || seen[nameOf(body)] || !strings.HasPrefix(r.Do, "POST ") || r.As != "" {
			continue
		}
		seen[nameOf(body)] = true
		objects = append(objects, merge(map[string]any{"apiVersion": kind[0], "kind": kind[1]}, merge(body, map[string]any{"metadata": map[string]any{"namespace": ns}})))
	}
	return objects, nil
}
