package manifests

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

const (
	group = "apiVersion: admissionregistration.k8s.io/v1\n"
	rules = "matchConstraints: {resourceRules: [{apiGroups: [\"\"], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}"

	validatingPolicy  = group + "kind: ValidatingAdmissionPolicy\nmetadata: {name: NAME.static.k8s.io}\nspec:\n  " + rules + "\n  validations: [{expression: \"false\"}]\n"
	validatingBinding = group + "kind: ValidatingAdmissionPolicyBinding\nmetadata: {name: NAME.static.k8s.io}\nspec: {policyName: NAME.static.k8s.io, validationActions: [Deny]}\n"
	mutatingPolicy    = group + "kind: MutatingAdmissionPolicy\nmetadata: {name: NAME.static.k8s.io}\nspec:\n  " + rules + "\n  reinvocationPolicy: Never\n  mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: \"Object{}\"}}]\n"
	mutatingBinding   = group + "kind: MutatingAdmissionPolicyBinding\nmetadata: {name: NAME.static.k8s.io}\nspec: {policyName: NAME.static.k8s.io}\n"
	webhooks          = "metadata: {name: NAME.static.k8s.io}\nwebhooks:\n- name: a.example.com\n  sideEffects: None\n  admissionReviewVersions: [v1]\n  clientConfig: {url: \"https://127.0.0.1:1\"}\n  rules: [{apiGroups: [\"\"], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]\n"
	validatingHooks   = group + "kind: ValidatingWebhookConfiguration\n" + webhooks
	mutatingHooks     = group + "kind: MutatingWebhookConfiguration\n" + webhooks
)

// namedManifest is a manifest with a name in it.
func namedManifest(manifest, name string) string { return strings.ReplaceAll(manifest, "NAME", name) }

// write writes files to a directory.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func names(t *testing.T, s *set) []string {
	t.Helper()
	var list []string
	for _, m := range s.manifests {
		obj, err := meta.Accessor(m.Object)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, strings.TrimSuffix(obj.GetName(), registration.StaticSuffix))
	}
	return list
}

func TestFilesAreRead(t *testing.T) {
	policies := func(names ...string) string {
		var list []string
		for _, name := range names {
			list = append(list, namedManifest(validatingPolicy, name))
		}
		return strings.Join(list, "---\n")
	}
	list := func(kind, content string) string {
		indented := "- " + strings.ReplaceAll(strings.TrimSuffix(content, "\n"), "\n", "\n  ")
		return "apiVersion: " + map[bool]string{true: "v1", false: "admissionregistration.k8s.io/v1"}[kind == "List"] + "\nkind: " + kind + "\nitems:\n" + indented + "\n"
	}
	for _, tt := range []struct {
		name   string
		plugin string
		files  map[string]string
		want   []string
	}{
		{"S21.4 the extensions, in the order of names", registration.ValidatingPolicyPlugin, map[string]string{
			"b.yaml": policies("b"), "a.yml": policies("a"), "C.YAML": policies("c"), ".dot.yaml": policies("dot"),
			"other.txt": "{", "none": "{", "empty.yaml": "", "backup.yaml~": "{",
		}, []string{"dot", "c", "a", "b"}},
		{"S21.5 documents", registration.ValidatingPolicyPlugin, map[string]string{"a.yaml": "---\n" + policies("b", "a") + "---\n\n---\n  \n"}, []string{"b", "a"}},
		{"S21.5 JSON", registration.ValidatingPolicyPlugin, map[string]string{
			"a.json": `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyList","items":[]}`,
		}, nil},
		{"S21.5 a typed list", registration.ValidatingPlugin, map[string]string{"a.yaml": list("ValidatingWebhookConfigurationList", namedManifest(validatingHooks, "a"))}, []string{"a"}},
		{"S21.5 a list of anything, and one in it", registration.ValidatingPolicyPlugin, map[string]string{"a.yaml": list("List", list("List", policies("a")))}, []string{"a"}},
		{"S21.6 policies and their bindings", registration.MutatingPolicyPlugin, map[string]string{"a.yaml": namedManifest(mutatingBinding, "a") + "---\n" + namedManifest(mutatingPolicy, "a")}, []string{"a", "a"}},
		{"S21.6 mutating webhooks", registration.MutatingPlugin, map[string]string{"a.yaml": namedManifest(mutatingHooks, "a")}, []string{"a"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, tt.files)
			if err := os.Mkdir(filepath.Join(dir, "dir.yaml"), 0o700); err != nil {
				t.Fatal(err)
			}
			s, err := load(tt.plugin, dir)
			if err != nil || !slices.Equal(names(t, s), tt.want) {
				t.Errorf("got %v, %v; want %v", s, err, tt.want)
			}
		})
	}
	t.Run("S21.4 links to files", func(t *testing.T) {
		dir, elsewhere := t.TempDir(), t.TempDir()
		write(t, elsewhere, map[string]string{"x": policies("linked")})
		if err := os.Symlink(filepath.Join(elsewhere, "x"), filepath.Join(dir, "a.yaml")); err != nil {
			t.Fatal(err)
		}
		if s, err := load(registration.ValidatingPolicyPlugin, dir); err != nil || !slices.Equal(names(t, s), []string{"linked"}) {
			t.Errorf("got %v, %v", s, err)
		}
	})
	t.Run("S21.7 defaults are filled in", func(t *testing.T) {
		dir := t.TempDir()
		write(t, dir, map[string]string{"a.yaml": namedManifest(validatingHooks, "a")})
		s, err := load(registration.ValidatingPlugin, dir)
		if err != nil {
			t.Fatal(err)
		}
		w := s.manifests[0].Object.(*v1.ValidatingWebhookConfiguration).Webhooks[0]
		if *w.FailurePolicy != v1.Fail || *w.MatchPolicy != v1.Equivalent || *w.TimeoutSeconds != 10 || w.NamespaceSelector == nil {
			t.Errorf("got %+v", w)
		}
	})
}

// TestBadFilesAreRefused has the messages of upstream; bench/differential compares them with
// a real kube-apiserver.
func TestBadFilesAreRefused(t *testing.T) {
	validating, mutating := registration.ValidatingPolicyPlugin, registration.MutatingPolicyPlugin
	policy, binding := namedManifest(validatingPolicy, "a"), namedManifest(validatingBinding, "a")
	for _, tt := range []struct {
		name, plugin, content, want string
	}{
		{"S21.5 an older version", registration.ValidatingPlugin, strings.Replace(namedManifest(validatingHooks, "a"), "/v1\n", "/v1beta1\n", 1), "unsupported resource type *v1beta1.ValidatingWebhookConfiguration"},
		{"S21.6 a kind of another plugin", validating, namedManifest(mutatingPolicy, "a"), "unsupported resource type *v1.MutatingAdmissionPolicy"},
		{"S21.6 webhooks among policies", mutating, namedManifest(mutatingHooks, "a"), "unsupported resource type *v1.MutatingWebhookConfiguration"},
		{"S21.6 a kind that is no registration", validating, "apiVersion: v1\nkind: ConfigMap\n", `no kind "ConfigMap" is registered for version "v1"`},
		{"S21.7 an unknown field", validating, strings.Replace(policy, "  validations", "  validationz: []\n  validations", 1), `strict decoding error: unknown field "spec.validationz"`},
		{"S21.7 a repeated field", validating, policy + "spec: {}\n", `key "spec" already set in map`},
		{"S21.7 what the API refuses", validating, strings.Replace(policy, `"false"`, `"1"`, 1), `ValidatingAdmissionPolicy "a.static.k8s.io": spec.validations[0].expression: Invalid value: "1": must evaluate to bool`},
		{"S21.8 no name", validating, strings.Replace(policy, "{name: a.static.k8s.io}", "{}", 1), "metadata.name: Required value"},
		{"S21.8 another name", validating, strings.Replace(policy, "a.static.k8s.io", "a.example.com", 1), `"a.example.com" in file "FILE" must have a name ending with ".static.k8s.io"`},
		{"S21.8 the same name", validating, policy + "---\n" + policy, `duplicate name "a.static.k8s.io" found in file "FILE" (previously seen in "FILE")`},
		{"S21.9 paramKind", validating, strings.Replace(policy, "spec:\n", "spec:\n  paramKind: {apiVersion: v1, kind: ConfigMap}\n", 1), `ValidatingAdmissionPolicy "a.static.k8s.io": spec.paramKind is not supported for static manifests`},
		{"S21.9 paramKind of a mutating policy", mutating, strings.Replace(namedManifest(mutatingPolicy, "a"), "spec:\n", "spec:\n  paramKind: {apiVersion: v1, kind: ConfigMap}\n", 1), `MutatingAdmissionPolicy "a.static.k8s.io": spec.paramKind is not supported for static manifests`},
		{"S21.9 paramRef", validating, policy + "---\n" + strings.Replace(binding, "policyName", "paramRef: {name: p, parameterNotFoundAction: Deny}, policyName", 1), `binding "a.static.k8s.io": spec.paramRef is not supported for static manifests`},
		{"S21.9 a policy of the API", validating, policy + "---\n" + strings.Replace(binding, "policyName: a.static.k8s.io", "policyName: a.example.com", 1), `binding "a.static.k8s.io": spec.policyName "a.example.com" must end with ".static.k8s.io"`},
		{"S21.9 S21.11 S21.15 a policy of no file", validating, binding, `binding "a.static.k8s.io" references policy "a.static.k8s.io" which does not exist in the manifest directory`},
		{"S21.10 a service", registration.MutatingPlugin, strings.Replace(namedManifest(mutatingHooks, "a"), `{url: "https://127.0.0.1:1"}`, "{service: {namespace: ns, name: svc}}", 1), `webhook "a.example.com" in "a.static.k8s.io" (file "FILE"): clientConfig.service is not supported for static manifests; use clientConfig.url instead`},
		{"not YAML", validating, "a: [", "yaml: line 1: did not find expected node content"},
		{"a document of comments only, which upstream refuses, too", validating, "# a comment\n---\n" + policy, "Object 'Kind' is missing in '# a comment'"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, map[string]string{"a.yaml": tt.content})
			file := filepath.Join(dir, "a.yaml")
			_, err := load(tt.plugin, dir)
			want := strings.ReplaceAll(tt.want, "FILE", file)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Fatalf("got %v\nwant %s", err, want)
			}
			// S21.11: only an error about several documents together names no file.
			if prefix := "error loading " + file + ": "; strings.HasPrefix(err.Error(), prefix) == strings.Contains(tt.name, "S21.11") {
				t.Errorf("the prefix of: %v", err)
			}
		})
	}
	t.Run("S21.11 a directory that is gone", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "gone")
		if _, err := load(validating, dir); err == nil || !strings.HasPrefix(err.Error(), `failed to read manifest directory "`+dir+`"`) {
			t.Errorf("got %v", err)
		}
	})
}

func TestTheHashIsThatOfTheBytes(t *testing.T) {
	// S21.23: the hash ignores names, and is empty without data.
	one, two := t.TempDir(), t.TempDir()
	write(t, one, map[string]string{"a.yaml": namedManifest(validatingPolicy, "a"), "b.yaml": namedManifest(validatingPolicy, "b")})
	write(t, two, map[string]string{"x.yaml": namedManifest(validatingPolicy, "a"), "y.yaml": namedManifest(validatingPolicy, "b"), "z.txt": "other"})
	first, err := load(registration.ValidatingPolicyPlugin, one)
	if err != nil {
		t.Fatal(err)
	}
	second, err := load(registration.ValidatingPolicyPlugin, two)
	if err != nil || first.hash != second.hash || !strings.HasPrefix(first.hash, "sha256:") {
		t.Errorf("%q and %q, %v", first.hash, second.hash, err)
	}
	if empty, err := load(registration.ValidatingPolicyPlugin, t.TempDir()); err != nil || empty.hash != "" {
		t.Errorf("%v, %v", empty, err)
	}
}

func TestLinesAreFound(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"a.yaml": "---\n# first\n" + namedManifest(validatingPolicy, "other") + "---\n" + namedManifest(validatingPolicy, "a")})
	s, err := Open(Options{Directories: map[string]string{registration.ValidatingPolicyPlugin: dir}})
	if err != nil {
		t.Fatal(err)
	}
	rule := 0
	at := s.Locate(&plan.Entry{Kind: registration.ValidatingPolicyKind, Configuration: "a.static.k8s.io", Source: "static"}, &rule)
	if at == nil || at.String() != filepath.Join(dir, "a.yaml")+":14: spec.matchConstraints.resourceRules[0]" {
		t.Errorf("got %v", at)
	}
	if s.Locate(&plan.Entry{Kind: registration.ValidatingPolicyKind, Configuration: "a.static.k8s.io"}, nil) != nil {
		t.Error("an entry of the API was found in the files")
	}
}
