package admission

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
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
			for _, plugin := range webhookPlugins {
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
