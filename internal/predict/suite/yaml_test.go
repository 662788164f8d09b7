package suite

import (
	"reflect"
	"testing"

	yamlv3 "go.yaml.in/yaml/v3"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// What is read in the short way has the values that Kubernetes reads.
func TestPlainValuesAreThoseOfTheLibrary(t *testing.T) {
	short := 0
	for _, text := range []string{
		"web", "web-1.example.com/a_b", "/metadata/labels", "yes", "Yes", "y", "N", "on", "OFF", "true", "True", "false", "null", "Null", "~", "", "'yes'", `"on"`, "'1'", "\"a\\nb\"", "!!str 5", "!!str yes",
		"0", "1", "-1", "+1", "01", "0o7", "0x1f", "1_000", "123456789012345", "1234567890123456789", "12345678901234567890", "1.5", "1e3", "e1", ".inf", ".nan", "1:30", "2026-01-01", "2026-01-01T00:00:00Z", "500m", "1Gi",
		"{}", "[]", "{a: b}", "{a: 1, b: [x, 2, true, {c: 'd'}]}", "{1: a}", "{yes: a}", "{'yes': a}", "{true: a}", "{null: a}", "{~: a}", "{<<: {a: b}}", "{a: b c}", "{a: &x b, c: *x}", "{a: {<<: &y {b: c}}}", "|\n  a\n  b\n", ">-\n  a\n  b\n", "{? [a] : b}",
		"{apiVersion: v1, kind: Pod, metadata: {name: web, labels: {app: web}}, spec: {containers: [{name: c, image: 'i:1', ports: [{containerPort: 80}]}]}}",
	} {
		var root yamlv3.Node
		if err := yamlv3.Unmarshal([]byte("v: "+text+"\n"), &root); err != nil {
			t.Fatal(text, err)
		}
		got, ok := plain(root.Content[0])
		if !ok {
			continue
		}
		short++
		data, err := yaml.YAMLToJSONStrict([]byte("v: " + text + "\n"))
		if err != nil {
			t.Errorf("%s: %v, read as %v", text, err, got)
			continue
		}
		var want any
		if err := utiljson.Unmarshal(data, &want); err != nil {
			t.Fatal(text, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %#v, want %#v", text, got, want)
		}
	}
	if short != 20 {
		t.Errorf("%d texts were read in the short way", short)
	}
}
