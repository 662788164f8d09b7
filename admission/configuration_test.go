package admission

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
)

func TestLoadConfiguration(t *testing.T) {
	tests := []struct {
		name  string
		files map[string]string
		want  map[string]string // plugin name -> kubeConfigFile
		err   string            // contained in the error
	}{
		{
			name: "S9.12 S9.13 v1alpha1 with WebhookAdmission",
			files: map[string]string{"c": `
apiVersion: apiserver.k8s.io/v1alpha1
kind: AdmissionConfiguration
plugins:
- name: ValidatingAdmissionWebhook
  configuration:
    apiVersion: apiserver.config.k8s.io/v1alpha1
    kind: WebhookAdmission
    kubeConfigFile: /v
- name: MutatingAdmissionWebhook
  configuration:
    apiVersion: apiserver.config.k8s.io/v1alpha1
    kind: WebhookAdmission
    kubeConfigFile: /m
`},
			want: map[string]string{ValidatingWebhookName: "/v", MutatingWebhookName: "/m"},
		},
		{
			name: "S9.12 S9.13 v1 in JSON with WebhookAdmissionConfiguration, GenericAdmissionWebhook included",
			files: map[string]string{"c": `{"apiVersion":"apiserver.config.k8s.io/v1","kind":"AdmissionConfiguration",
"plugins":[{"name":"GenericAdmissionWebhook","configuration":{"apiVersion":"apiserver.config.k8s.io/v1","kind":"WebhookAdmissionConfiguration","kubeConfigFile":"/g"}}]}`},
			want: map[string]string{GenericWebhookName: "/g"},
		},
		{
			name: "S9.12 a relative path is relative to the file; the first entry wins; configuration wins over path",
			files: map[string]string{
				"c": `
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- {name: MutatingAdmissionWebhook, path: m.yaml}
- {name: MutatingAdmissionWebhook, path: absent.yaml}
- name: ValidatingAdmissionWebhook
  path: absent.yaml
  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: /v}
`,
				"m.yaml": `{apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: /m}`,
			},
			want: map[string]string{ValidatingWebhookName: "/v", MutatingWebhookName: "/m"},
		},
		{
			name: "S9.12 entries of unknown plugins are ignored, S9.13 an empty kubeConfigFile is allowed",
			files: map[string]string{"c": `
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- {name: Other, path: absent.yaml}
- name: MutatingAdmissionWebhook
  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: ""}
`},
		},
		{
			name:  "S9.12 unknown field",
			files: map[string]string{"c": "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\npluginz: []\n"},
			err:   `unknown field "pluginz"`,
		},
		{
			name:  "S9.12 repeated key",
			files: map[string]string{"c": "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nkind: AdmissionConfiguration\n"},
			err:   `"kind" already set`,
		},
		{
			name:  "S9.12 other kind",
			files: map[string]string{"c": "apiVersion: v1\nkind: ConfigMap\n"},
			err:   `apiVersion "v1", kind "ConfigMap" is unknown`,
		},
		{
			name:  "S9.12 unreadable path",
			files: map[string]string{"c": "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins: [{name: MutatingAdmissionWebhook, path: absent.yaml}]\n"},
			err:   "absent.yaml: no such file",
		},
		{
			name: "S9.12 S9.13 what is wrong in the file of a path, which is named",
			files: map[string]string{
				"c":      "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins: [{name: MutatingAdmissionWebhook, path: m.yaml}]\n",
				"m.yaml": "apiVersion: v1\nkind: Pod\n",
			},
			err: `m.yaml: apiVersion "v1", kind "Pod" is unknown`,
		},
		{
			name: "S9.13 unknown field of a plugin configuration",
			files: map[string]string{"c": `
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: MutatingAdmissionWebhook
  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeconfigfile: /m}
`},
			err: `unknown field "kubeconfigfile"`,
		},
		{
			name: "S9.13 a kubeConfigFile that is not absolute",
			files: map[string]string{"c": `
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: MutatingAdmissionWebhook
  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: m}
`},
			err: `plugin MutatingAdmissionWebhook: kubeConfigFile: Invalid value: "m": must be an absolute file path`,
		},
		{
			name: "S9.13 the v1 kind in v1alpha1",
			files: map[string]string{"c": `
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: MutatingAdmissionWebhook
  configuration: {apiVersion: apiserver.config.k8s.io/v1alpha1, kind: WebhookAdmissionConfiguration}
`},
			err: "is unknown: use apiserver.config.k8s.io/v1alpha1 WebhookAdmission or apiserver.config.k8s.io/v1 WebhookAdmissionConfiguration",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, content := range tt.files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			c, err := LoadConfiguration(filepath.Join(dir, "c"))
			if tt.err == "" && err != nil || !strings.Contains(text(err), tt.err) {
				t.Fatalf("got error %v, want %q", err, tt.err)
			}
			if err != nil {
				return
			}
			for plugin := range pluginConfigurations {
				if got := c.KubeConfigFile(plugin); got != tt.want[plugin] {
					t.Errorf("%s: got %q, want %q", plugin, got, tt.want[plugin])
				}
			}
		})
	}
}

func TestLoadConfigurationWithoutFile(t *testing.T) {
	c, err := LoadConfiguration("")
	if err != nil {
		t.Fatal(err)
	}
	if raw, err := c.Raw(MutatingWebhookName); raw != nil || err != nil {
		t.Errorf("got %q, %v", raw, err)
	}
	if _, err := LoadConfiguration(filepath.Join(t.TempDir(), "absent")); err == nil {
		t.Error("an absent file is no error")
	}
}

// TestStaticManifestsDirIsChecked proves S21.1, S21.2 and S21.3: the types of plugins'
// configurations, and the directories that are rejected.
func TestStaticManifestsDirIsChecked(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const webhooks, validating, mutating = "WebhookAdmissionConfiguration", "ValidatingAdmissionPolicyConfiguration", "MutatingAdmissionPolicyConfiguration"
	v1 := func(kind, dir string) string {
		return "{apiVersion: apiserver.config.k8s.io/v1, kind: " + kind + ", staticManifestsDir: " + dir + "}"
	}
	for _, tt := range []struct {
		name, plugin, configuration string
		off                         bool
		err                         string
	}{
		{name: "S21.1 mutating webhooks", plugin: MutatingWebhookName, configuration: v1(webhooks, dir)},
		{name: "S21.1 validating webhooks", plugin: ValidatingWebhookName, configuration: v1(webhooks, dir)},
		{name: "S21.1 mutating policies", plugin: MutatingPolicyName, configuration: v1(mutating, dir)},
		{name: "S21.1 validating policies", plugin: ValidatingPolicyName, configuration: v1(validating, dir)},
		{name: "S21.1 the kind of another plugin", plugin: ValidatingPolicyName, configuration: v1(mutating, dir), err: "unexpected type: apiserver.config.k8s.io/v1 " + mutating + "; use apiserver.config.k8s.io/v1 " + validating},
		{name: "S21.1 the kind of webhooks for policies", plugin: ValidatingPolicyName, configuration: v1(webhooks, dir), err: "unexpected type"},
		{name: "S21.1 the older kind has no such field", plugin: MutatingWebhookName, configuration: "{apiVersion: apiserver.config.k8s.io/v1alpha1, kind: WebhookAdmission, staticManifestsDir: " + dir + "}", err: `unknown field "staticManifestsDir"`},
		{name: "S21.1 policies have no kubeconfig", plugin: MutatingPolicyName, configuration: "{apiVersion: apiserver.config.k8s.io/v1, kind: " + mutating + ", kubeConfigFile: /k}", err: `unknown field "kubeConfigFile"`},
		{name: "S21.1 external hooks have no url", plugin: GenericWebhookName, configuration: v1(webhooks, dir), err: "external hooks have no url"},
		{name: "S21.2 empty is off", plugin: MutatingPolicyName, configuration: v1(mutating, `""`)},
		{name: "S21.2 not absolute", plugin: MutatingPolicyName, configuration: v1(mutating, "manifests"), err: `staticManifestsDir: Invalid value: "manifests": must be an absolute file path`},
		{name: "S21.2 not there", plugin: MutatingPolicyName, configuration: v1(mutating, dir+"/none"), err: "unable to read: stat " + dir + "/none: no such file or directory"},
		{name: "S21.2 not a directory", plugin: MutatingPolicyName, configuration: v1(mutating, file), err: "must be a directory"},
		{name: "S21.3 the feature is off", plugin: MutatingPolicyName, configuration: v1(mutating, dir), off: true, err: "requires the ManifestBasedAdmissionControlConfig feature gate to be enabled"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.off {
				featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ManifestBasedAdmissionControlConfig, false)
			}
			file := filepath.Join(t.TempDir(), "c")
			content := "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins: [{name: " + tt.plugin + ", configuration: " + tt.configuration + "}]\n"
			if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			c, err := LoadConfiguration(file)
			if tt.err != "" {
				if !strings.Contains(text(err), tt.err) || !strings.Contains(text(err), "plugin "+tt.plugin) {
					t.Errorf("got error %v, want %q", err, tt.err)
				}
				return
			}
			want := dir
			if strings.Contains(tt.configuration, `""`) {
				want = ""
			}
			if err != nil || c.StaticManifestsDir(tt.plugin) != want {
				t.Errorf("got %v, %v; want %q", c, err, want)
			}
		})
	}
}
