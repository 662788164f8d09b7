package blame

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
)

func TestWhetherAnObjectStillHasWhatWasSet(t *testing.T) {
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON([]byte(`{"apiVersion":"v1","kind":"Pod",
		"metadata":{"name":"web","labels":{"team":"red","a/b":"c"}},
		"spec":{"n":3,"f":1.5,"containers":[{"name":"web","image":"i","resources":{}},{"name":"side","image":"s","imagePullPolicy":"Always"}]}}`)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ op, path, value, want string }{
		{"add", "/metadata/labels/team", `"red"`, "same"},
		{"add", "/metadata/labels/team", `"blue"`, "changed"},
		{"add", "/metadata/labels/a~1b", `"c"`, "same"},
		{"add", "/metadata/labels", `{"team":"red"}`, "same"},
		{"add", "/metadata/labels", `{"team":"red","gone":"x"}`, "changed"},
		{"replace", "/spec/n", `3`, "same"},
		{"replace", "/spec/n", `4`, "changed"},
		{"replace", "/spec/f", `1.5`, "same"},
		{"add", "/spec/containers/1", `{"name":"side","image":"s"}`, "same"},
		{"add", "/spec/containers/-", `{"name":"side","image":"s"}`, "same"},
		{"add", "/spec/containers/-", `{"name":"gone"}`, "changed"},
		{"add", "/spec/containers/7", `{}`, "changed"},
		{"add", "/spec/containers", `[{"name":"web"}]`, "changed"},
		{"add", "/spec/m", `1`, "changed"},
		{"remove", "/spec/m", "", "same"},
		{"remove", "/spec/n", "", "changed"},
		{"add", "/spec/n", "", "unknown"},
		// A credential that the trace does not show.
		{"add", "/metadata/labels/team", `"[removed]"`, "unknown"},
		{"add", "/spec/containers/-", `{"name":"side","env":[{"name":"TOKEN","value":"[removed]"}]}`, "unknown"},
	} {
		p := &trace.PatchOperation{Op: c.op, Path: c.path, Value: json.RawMessage(c.value)}
		if got := now(object, p); got != c.want {
			t.Errorf("%s %s %s: got %s, want %s", c.op, c.path, c.value, got, c.want)
		}
		if got := now(nil, p); got != "unknown" {
			t.Errorf("of an object that cannot be read, %s is known", got)
		}
	}
}
