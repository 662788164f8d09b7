package cli

import (
	"encoding/json"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
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

// The table of long values fits a terminal, and nothing of it is lost.
func TestBlameFitsTheTerminal(t *testing.T) {
	b := &blame{Object: "pod/web", Changes: []change{{
		Path: "/spec/containers/-", Op: "add", Field: "spec.containers[name=sidecar]", Value: json.RawMessage(`{"image":"registry.example.com/mesh/proxy:1.2.3","name":"sidecar","resources":{}}`),
		By: "podpolicy/sidecar.podpolicy.example.com", ByKind: byWebhook, Now: "same", Operation: "CREATE", User: "system:serviceaccount:kube-system:replicaset-controller", Trace: "01kb3v9d3zq0x8w6y5t4r2e1aa",
	}}}
	for width, lines := range map[string]int{"80": 0, "120": 0, "": 2} {
		t.Setenv("COLUMNS", width)
		var out strings.Builder
		if err := b.print(&out, io.Discard); err != nil {
			t.Fatal(err)
		}
		most, _ := strconv.Atoi(width)
		for line := range strings.Lines(out.String()) {
			if n := len(strings.TrimSuffix(line, "\n")); most > 0 && n > most {
				t.Errorf("%d columns in %s: %s", n, width, line)
			}
		}
		if !strings.Contains(out.String(), b.Changes[0].Trace) || !strings.Contains(out.String(), "replicaset-controller") {
			t.Errorf("in %s columns something is lost:\n%s", width, out.String())
		}
		if n := strings.Count(out.String(), "\n"); lines > 0 && n != lines {
			t.Errorf("%d lines where there is no terminal:\n%s", n, out.String())
		}
	}
}

func TestOnlyTheAttemptThatWasStoredIsBlamed(t *testing.T) {
	step := func(plugin, pass string, round int) trace.StepRecord {
		return trace.StepRecord{Plugin: plugin, Pass: pass, Round: round, Namespace: "shop", Name: "web"}
	}
	once := []trace.StepRecord{step("A", "mutating", 0), step("B", "mutating", 0), step("A", "mutating", 1), step("A", "validating", 0)}
	for name, steps := range map[string][]trace.StepRecord{
		"once": once, "twice": slices.Concat(once, once), "rejected first": slices.Concat(once[:1], once), "none": nil,
	} {
		want := once
		if name == "none" {
			want = nil
		}
		if got := lastAttempt(steps); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
