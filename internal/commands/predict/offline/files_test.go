package offline_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/builtins"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
)

func writeFile(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

const hooks = `# two documents, and a list
apiVersion: v1
kind: List
items:
- apiVersion: admissionregistration.k8s.io/v1
  kind: ValidatingWebhookConfiguration
  metadata: {name: listed}
  webhooks:
  - name: one.example.com
    clientConfig: {url: "https://example.com/"}
    admissionReviewVersions: [v1]
    sideEffects: None
    rules:
    - {apiGroups: [apps], apiVersions: [v1], resources: [deployments], operations: [CREATE]}
    - {apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}
--- # the second one
apiVersion: admissionregistration.k8s.io/v1alpha1
kind: InitializerConfiguration
metadata: {name: single}
initializers:
- name: two.example.com
  rules:
  - {apiGroups: [""], apiVersions: [v1], resources: [configmaps]}
`

// A step has the position of its rule.
func TestStepsHaveTheirPlaceInFiles(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "hooks.yaml")
	writeFile(t, name, hooks)
	writeFile(t, filepath.Join(dir, "README"), "not YAML: [")
	w, err := builtins.Read([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	objects, err := offline.Objects("c", []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"}}`))
	if err != nil {
		t.Fatal(err)
	}
	p, err := w.Plan(t.Context(), &offline.Request{
		Operation: "CREATE", Kind: w.Kinds.Of(objects[0].GroupVersionKind()), Namespace: "default", Name: "c", Object: objects[0],
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for s := range p.Each() {
		got = append(got, s.Entry.Name+" "+s.Location.String())
	}
	want := []string{
		"two.example.com " + name + ":23: initializers[0].rules[0]",
		"one.example.com " + name + ":15: webhooks[0].rules[1]",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("places (-want +got):\n%s", diff)
	}
}

func TestBadFilesAreNamedWithTheirLine(t *testing.T) {
	valid := "apiVersion: admissionregistration.k8s.io/v1alpha1\nkind: InitializerConfiguration\nmetadata: {name: a}\n"
	for _, c := range []struct{ name, content, want string }{
		{"no YAML", "a: [", "f.yaml:1: did not find expected node content"},
		{"no YAML in the second document", "---\n---\na: [", "f.yaml:3: did not find expected node content"},
		{"no object", "- a\n", "f.yaml:1: not an object"},
		{"no kind", "apiVersion: v1\n", "f.yaml:1: not a Kubernetes object: it has no metadata, and no kind"},
		{"an item without a kind", "apiVersion: v1\nkind: List\nitems:\n- {}\n", "f.yaml:4: apiVersion is missing"},
		{"an unknown registration", "\napiVersion: admissionregistration.k8s.io/v9\nkind: InitializerConfiguration\n", "f.yaml:2: admissionregistration.k8s.io/v9, Kind=InitializerConfiguration is not a kind of registration"},
		{"an invalid registration", valid + "initializers: [{name: short}]\n", `f.yaml:1: InitializerConfiguration "a": initializers[0].name: Invalid value`},
		{"the same registration twice", valid + "---\n" + valid, `InitializerConfiguration "a" is at `},
		{"half a definition", "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: x}\n", "f.yaml:1: CustomResourceDefinition \"x\": spec.group"},
	} {
		name := filepath.Join(t.TempDir(), "f.yaml")
		writeFile(t, name, c.content)
		if _, err := builtins.Read([]string{name}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %s", c.name, err, c.want)
		}
	}
	if _, err := builtins.Read([]string{t.TempDir()}); err == nil || !strings.Contains(err.Error(), "has no .yaml") {
		t.Errorf("an empty directory: %v", err)
	}
}

// The result of a policy is unknown if it depends on an object that no file has, and the reason is reported; other
// policies are evaluated.
func TestPoliciesOfFilesSayWhatTheyLack(t *testing.T) {
	const rules = `matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [configmaps]}]}`
	policy := func(name, spec string) string {
		return "---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: " + name + "}\nspec: {" + rules + ", " + spec + "}\n"
	}
	binding := func(name, spec string) string {
		return "---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nmetadata: {name: " + name +
			"}\nspec: {policyName: " + name + ", validationActions: [Deny]" + spec + "}\n"
	}
	for _, c := range []struct {
		name, spec, binding, more string
		// effect and says are the expected effect and text of the step.
		effect plan.Effect
		says   string
	}{
		{name: "nothing lacks", spec: `validations: [{expression: "object.metadata.name == 'c'"}]`, effect: plan.Evaluate},
		{name: "violated", spec: `validations: [{expression: "object.metadata.name == 'd'"}]`, effect: plan.Reject, says: "failed expression"},
		{name: "namespace", spec: `validations: [{expression: "has(namespaceObject.metadata)"}]`, effect: plan.Undecided, says: "no file has namespace default"},
		{
			name: "namespace of a file", spec: `validations: [{expression: "namespaceObject.metadata.labels['a'] == 'b'"}]`, effect: plan.Evaluate,
			more: "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: default, labels: {a: b}}\n",
		},
		{name: "user", spec: `validations: [{expression: "request.userInfo.username == 'a'"}]`, effect: plan.Undecided, says: "name one with --as"},
		{name: "rights", spec: `validations: [{expression: "authorizer.path('/').check('get').allowed()"}]`, effect: plan.Undecided, says: "files do not have the rights of the user"},
		{
			name: "param", spec: `paramKind: {apiVersion: v1, kind: ConfigMap}, validations: [{expression: "true"}]`,
			binding: ", paramRef: {name: p, namespace: q, parameterNotFoundAction: Deny}", effect: plan.Undecided, says: "no file has ConfigMap q/p",
		},
		{
			name: "selected params", spec: `paramKind: {apiVersion: v1, kind: ConfigMap}, validations: [{expression: "true"}]`,
			binding: ", paramRef: {selector: {}, parameterNotFoundAction: Deny}", effect: plan.Undecided, says: "no file has a ConfigMap that the binding selects",
		},
		{
			name: "kind of params", spec: `paramKind: {apiVersion: example.com/v1, kind: Gadget}, validations: [{expression: "true"}]`,
			binding: ", paramRef: {name: p, parameterNotFoundAction: Deny}", effect: plan.Undecided, says: "no file defines the kind Gadget of example.com/v1",
		},
		{
			name: "param of a file, with its defaults", spec: `paramKind: {apiVersion: apps/v1, kind: Deployment}, validations: [{expression: "params.spec.revisionHistoryLimit == 10 && params.kind == 'Deployment'"}]`,
			binding: ", paramRef: {name: p, parameterNotFoundAction: Deny}", effect: plan.Evaluate,
			more: "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: p}\nspec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}\n",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			name := filepath.Join(t.TempDir(), "policies.yaml")
			writeFile(t, name, policy("p", c.spec)+binding("p", c.binding)+c.more)
			w, err := builtins.Read([]string{name})
			if err != nil {
				t.Fatal(err)
			}
			objects, err := offline.Objects("c", []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"}}`))
			if err != nil {
				t.Fatal(err)
			}
			p, err := w.Plan(t.Context(), &offline.Request{
				Operation: "CREATE", Kind: w.Kinds.Of(objects[0].GroupVersionKind()), Namespace: "default", Name: "c", Object: objects[0],
			})
			if err != nil {
				t.Fatal(err)
			}
			if len(p.Steps) != 1 {
				t.Fatalf("%d steps, want 1: %+v", len(p.Steps), p.Steps)
			}
			step := p.Steps[0]
			reason := ""
			if step.Reason != nil {
				reason = step.Reason.Message
			}
			if step.Effect != c.effect || !strings.Contains(reason, c.says) {
				t.Errorf("effect %s, reason %q; want %s, %q", step.Effect, reason, c.effect, c.says)
			}
			if want := name + ":5: spec.matchConstraints.resourceRules[0]"; step.Location == nil || step.Location.String() != want {
				t.Errorf("the place is %v, want %s", step.Location, want)
			}
		})
	}
}

// Every command reads files as kubectl does.
func TestFilesAreReadAsKubectlReadsThem(t *testing.T) {
	const object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\n"
	named := func(name string) string { return strings.ReplaceAll(object, "%s", name) }
	for _, c := range []struct{ name, content, want string }{
		{"YAML in braces", "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n", "a"},
		{"two JSON objects in a row", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b"}}`, "a b"},
		{"a comment behind dashes and a tab", named("a") + "---\t# the next one\n" + named("b"), "a b"},
		{"a key twice", named("a") + "kind: Secret\n", "a"},
		{"a mark at the beginning", "\ufeff" + named("a"), "a"},
	} {
		objects, err := offline.Objects("f.yaml", []byte(c.content))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		var names []string
		for _, o := range objects {
			names = append(names, o.GetName())
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
