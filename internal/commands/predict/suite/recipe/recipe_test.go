package recipe

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// installed makes the files of an engine, and returns their directory.
func installed(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// S24.33: a built-in recipe finds the engine in a directory, next to its program, or in the user's cache, and reports
// missing files.
func TestRecipesFindTheirEngine(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("HOME", cache)
	whole, half := installed(t, "gatekeeper", "gatekeeper.yaml"), installed(t, "gatekeeper")
	for _, tc := range []struct{ name, text, program, says string }{
		{"a directory", "gatekeeper=" + whole, filepath.Join(whole, "gatekeeper"), ""},
		{"a program", "gatekeeper=" + filepath.Join(whole, "gatekeeper"), filepath.Join(whole, "gatekeeper"), ""},
		{"a directory without manifests", "gatekeeper=" + half, "", "the engine gatekeeper: " + filepath.Join(half, "gatekeeper.yaml") + " is not there"},
		{"the other one", "kyverno=" + installed(t, "kyverno"), "", "kyverno.yaml is not there"},
		{"an empty cache", "gatekeeper", "", `is not there: docs/suites.md says in "With the real engine" how to build it there`},
		{"an unknown name", "gatekeper", "", `there is no engine "gatekeper" (did you mean gatekeeper?): the program knows gatekeeper and kyverno, and reads others`},
		{"no file", "./none.yaml", "", "./none.yaml: no such file or directory"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, err := Read(tc.text)
			switch {
			case tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says)):
				t.Errorf("got %v, want %q", err, tc.says)
			case tc.says == "" && (err != nil || r.Path != tc.program):
				t.Errorf("got %+v, %v; want %s", r, err, tc.program)
			}
		})
	}
}

// A recipe with a mistake is an error that names the field.
func TestWrongRecipes(t *testing.T) {
	whole := `
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionEngine
name: mine
command: [mine]
service: mine/mine
policies: [{group: mine.example.com, ready: object.status.ready}]
answers: ['(?P<policy>.*) says no']
`
	for _, tc := range []struct{ name, from, to, says string }{
		{"none", "", "", ""},
		{"kind", "AdmissionEngine", "Engine", `is of kind "Engine"`},
		{"field", "command:", "comand:", `unknown field "comand"`},
		{"command", "[mine]", "[]", "command: nothing starts the engine"},
		{"service", "mine/mine", "mine", `service: "mine" is not NAMESPACE/NAME`},
		{"policies", "policies: [{group: mine.example.com, ready: object.status.ready}]", "policies: []", "policies: the engine has no kinds of policies"},
		{"expression", "object.status.ready", "objct.status.ready", "policies[0].ready: ERROR"},
		{"answers", "(?P<policy>.*)", ".*", "answers[0]: it has no group (?P<policy>...)"},
		{"place", "name: mine", "name: mine\nready: https://example.com/readyz", `ready: "https://example.com/readyz" is not a URL of this machine`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "engine.yaml")
			if err := os.WriteFile(file, []byte(strings.Replace(whole, tc.from, tc.to, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Read(file)
			if tc.says == "" && err != nil || tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says)) {
				t.Errorf("got %v, want %q", err, tc.says)
			}
		})
	}
}

// S24.33: policies are put into enforcing mode, and otherwise stay unchanged.
func TestPoliciesReject(t *testing.T) {
	p := Policies{Set: map[string]any{"spec.action": "deny", "spec.overrides": nil, "spec.rules[].validate.action": "deny"}}
	policy := func(action string) map[string]any {
		spec := map[string]any{"rules": []any{
			map[string]any{"name": "one", "validate": map[string]any{"message": "no"}},
			map[string]any{"name": "two", "mutate": map[string]any{}},
		}}
		if action != "" {
			spec["action"] = action
			spec["rules"].([]any)[0].(map[string]any)["validate"].(map[string]any)["action"] = action
		} else {
			spec["overrides"] = []any{}
		}
		return map[string]any{"spec": spec}
	}
	got, want := policy(""), policy("deny")
	if p.Enforce(got); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

// S24.33: an engine applies its own kinds of policies, and the message of a denial names them.
func TestAnswersNamePolicies(t *testing.T) {
	r, err := Read("gatekeeper=" + installed(t, "gatekeeper", "gatekeeper.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	message := "admission webhook \"validation.gatekeeper.sh\" denied the request: [must-own] no owner\n[must-pay] no price"
	if got, want := r.Named(message), []string{"must-own", "must-pay"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if r.Judges("v1", "ConfigMap") || !r.Judges("constraints.gatekeeper.sh/v1beta1", "MustOwn") {
		t.Error("Gatekeeper judges by its own kinds only")
	}
}
