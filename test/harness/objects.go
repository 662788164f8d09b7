package harness

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// Definition returns a CustomResourceDefinition as policy engines install it, without a schema of its fields.
func Definition(group, kind, plural, scope string, versions ...string) string {
	var list []any
	for i, v := range versions {
		list = append(list, map[string]any{"name": v, "served": true, "storage": i == 0, "schema": map[string]any{
			"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
		}})
	}
	return AsJSON(map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": plural + "." + group},
		"spec": map[string]any{
			"group": group, "scope": scope, "versions": list,
			"names": map[string]any{"plural": plural, "singular": strings.ToLower(kind), "kind": kind, "listKind": kind + "List"},
		},
	})
}

// Including is the query parameter that includes uninitialized objects.
const Including = "?includeUninitialized=true"

// Pending formats the names in an object's list of pending initializers; "none" if the list is empty.
func Pending(obj any) string {
	list, ok := At(obj, "metadata", "initializers", "pending").([]any)
	if !ok {
		return "none"
	}
	var names []string
	for _, i := range list {
		names = append(names, strings.TrimSuffix(fmt.Sprint(At(i, "name")), ".example.com"))
	}
	return strings.Join(names, ",")
}

// Uninitialized returns a deployment that waits for the initializers a and b.
func Uninitialized(name string) string {
	return strings.Replace(Deployment("apps/v1", name), `"metadata":{`,
		`"metadata":{"initializers":{"pending":[{"name":"a.example.com"},{"name":"b.example.com"}]},`, 1)
}

// Contains fails the test if the text lacks one of the parts.
func Contains(t *testing.T, what, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%s does not have %q:\n%s", what, part, text)
		}
	}
}

// ToJSON converts YAML to JSON. Arguments are inserted into the text as by fmt.Sprintf.
func ToJSON(text string, args ...any) string {
	if len(args) > 0 {
		text = fmt.Sprintf(text, args...)
	}
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		panic(fmt.Sprintf("%v in %s", err, text))
	}
	return string(data)
}

func ConfigMap(name string, labels ...string) string {
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

func Pod(name string, lines ...string) string {
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
		Merge(content, extra)
	}
	data, err := json.Marshal(content)
	if err != nil {
		panic(err)
	}
	return string(data)
}

func Deployment(apiVersion, name string) string {
	return ToJSON(`
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

// Merge copies the fields of from into the map into, recursively.
func Merge(into, from map[string]any) {
	for k, v := range from {
		old, isMap := into[k].(map[string]any)
		if m, ok := v.(map[string]any); ok && isMap {
			Merge(old, m)
			continue
		}
		into[k] = v
	}
}

// Names returns the sorted names of the items of a list or of the rows of a Table.
func Names(list *Response) []string {
	names := []string{}
	items, _ := list.At("items").([]any)
	for _, item := range items {
		names = append(names, fmt.Sprint(At(item, "metadata", "name")))
	}
	rows, _ := list.At("rows").([]any)
	for _, row := range rows {
		names = append(names, fmt.Sprint(At(row, "object", "metadata", "name")))
	}
	slices.Sort(names)
	return names
}

// Want fails the test if got differs from want.
func Want(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// Media types of the representations that clients can request.
const (
	AsTable          = "application/json;as=Table;v=v1;g=meta.k8s.io"
	AsMetadata       = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
	AsMetadataList   = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
	ProtobufMetadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
)

const (
	JSONPatch      = "application/json-patch+json"
	StrategicPatch = "application/strategic-merge-patch+json"
	ApplyPatch     = "application/apply-patch+yaml"
)

// Line formats an event as one line.
func Line(e Event) string {
	return fmt.Sprintf("%s %v", e.Type, At(e.Object, "metadata", "name"))
}

// Parsed decodes an example in YAML or JSON.
func Parsed(t *testing.T, text string) map[string]any {
	t.Helper()
	var content map[string]any
	if err := yaml.UnmarshalStrict([]byte(text), &content); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return content
}

// Widgets creates a kind with two versions in a group named after the namespace, and returns the group.
func Widgets(t *testing.T, s *Server, ns string) string {
	t.Helper()
	h := s.HTTP(t, nil)
	group := ns + ".example.com"
	const version = `
  - name: %s
    served: true
    storage: %t
    subresources: {status: {}, scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties: {replicas: {type: integer, default: 1}, color: {type: string, maxLength: 8}, size: {type: string, default: small}}
          status: {type: object, properties: {replicas: {type: integer}}}`
	h.Must(http.StatusCreated, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", ToJSON(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.%[1]s}
spec:
  group: %[1]s
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  versions:`+fmt.Sprintf(version, "v1", true)+fmt.Sprintf(version, "v1beta1", false), group))
	Eventually(t, "the kind is served", func() error {
		if r := h.Do("GET", "/apis/"+group+"/v1/widgets", ""); r.Code != http.StatusOK {
			return fmt.Errorf("%d", r.Code)
		}
		return nil
	})
	return group
}

func WriteFile(t testing.TB, name, content string) string {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func AsJSON(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// ConfigMaps returns the path of the configmaps of a namespace.
func ConfigMaps(namespace string) string { return "/api/v1/namespaces/" + namespace + "/configmaps" }

const MergePatch = "application/merge-patch+json"
