package test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// toJSON turns YAML into JSON. Arguments fill the text in as fmt does.
func toJSON(text string, args ...any) string {
	if len(args) > 0 {
		text = fmt.Sprintf(text, args...)
	}
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		panic(fmt.Sprintf("%v in %s", err, text))
	}
	return string(data)
}

func configMap(name string, labels ...string) string {
	l := map[string]string{}
	for i := 0; i < len(labels); i += 2 {
		l[labels[i]] = labels[i+1]
	}
	data, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": name, "labels": l},
		"data":     map[string]string{"key": "value"},
	})
	if err != nil {
		panic(err)
	}
	return string(data)
}

func pod(name string, lines ...string) string {
	text := `{apiVersion: v1, kind: Pod, metadata: {name: ` + name + `}, spec: {containers: [{name: main, image: example/main:1}]}}`
	content := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &content); err != nil {
		panic(err)
	}
	for _, line := range lines {
		extra := map[string]any{}
		if err := yaml.Unmarshal([]byte(line), &extra); err != nil {
			panic(err)
		}
		merge(content, extra)
	}
	data, err := json.Marshal(content)
	if err != nil {
		panic(err)
	}
	return string(data)
}

func deployment(apiVersion, name string) string {
	return toJSON(`
apiVersion: %s
kind: Deployment
metadata: {name: %s, labels: {app: %[2]s}}
spec:
  replicas: 3
  selector: {matchLabels: {app: %[2]s}}
  template:
    metadata: {labels: {app: %[2]s}}
    spec:
      containers:
      - {name: main, image: "example/main:1", ports: [{containerPort: 80}]}
`, apiVersion, name)
}

// merge puts the fields of from into those of into.
func merge(into, from map[string]any) {
	for k, v := range from {
		old, isMap := into[k].(map[string]any)
		if m, ok := v.(map[string]any); ok && isMap {
			merge(old, m)
			continue
		}
		into[k] = v
	}
}

// names are the names of a list's items, sorted; of a Table's rows, too.
func names(list *harness.Response) []string {
	names := []string{}
	items, _ := list.At("items").([]any)
	for _, item := range items {
		names = append(names, fmt.Sprint(harness.At(item, "metadata", "name")))
	}
	rows, _ := list.At("rows").([]any)
	for _, row := range rows {
		names = append(names, fmt.Sprint(harness.At(row, "object", "metadata", "name")))
	}
	slices.Sort(names)
	return names
}

// want fails the test when got is not what is wanted.
func want(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// The forms that clients can ask for instead of objects.
const (
	asTable          = "application/json;as=Table;v=v1;g=meta.k8s.io"
	asMetadata       = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
	asMetadataList   = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
	protobufMetadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
)
