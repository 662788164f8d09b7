package admission

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

// FuzzLoadConfiguration: S9.12 and S9.13. Loading an AdmissionConfiguration and the file of a
// plugin that it references never panics. An error names the file, and also the referenced file if
// it is about that. An accepted file has one of the known types, and every credentials file in it
// has an absolute name and belongs to the first entry of its plugin.
func FuzzLoadConfiguration(f *testing.F) {
	const (
		alpha       = "apiVersion: apiserver.k8s.io/v1alpha1\nkind: AdmissionConfiguration\n"
		stable      = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n"
		alphaPlugin = "apiVersion: apiserver.config.k8s.io/v1alpha1\nkind: WebhookAdmission\n"
		plugin      = "apiVersion: apiserver.config.k8s.io/v1\nkind: WebhookAdmissionConfiguration\n"
		points      = "plugins:\n- name: ValidatingAdmissionWebhook\n  path: plugin\n"
		inline      = "plugins: [{name: MutatingAdmissionWebhook, configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: /m}}]"
	)
	for _, seed := range [][2]string{
		{alpha, ""}, {stable, ""}, {"", ""},
		{alpha + points, alphaPlugin}, {stable + points, plugin + "kubeConfigFile: /v"}, {stable + points, plugin + "kubeConfigFile: relative"},
		{stable + points, `{"apiVersion":"apiserver.config.k8s.io/v1","kind":"WebhookAdmissionConfiguration","kubeConfigFile":"/v"}`},
		{stable + inline, ""}, {stable + "kind: Pod", ""}, {stable + points + "- {name: ValidatingAdmissionWebhook, path: other}", plugin},
		{`{"apiVersion":"apiserver.config.k8s.io/v1","kind":"AdmissionConfiguration","plugins":[{"name":"GenericAdmissionWebhook","configuration":null,"path":"plugin"}]}`, plugin + "x: y"},
		{"plugins: [*a]", "a: &a [*a]"}, {stable + "---\n" + alpha, "\x00"}, {"- 1", "!!binary x"},
	} {
		f.Add([]byte(seed[0]), []byte(seed[1]))
	}
	dir := f.TempDir()
	file, other := filepath.Join(dir, "admission"), filepath.Join(dir, "plugin")
	f.Fuzz(func(t *testing.T, main, plugin []byte) {
		for name, content := range map[string][]byte{file: main, other: plugin} {
			if err := os.WriteFile(name, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		c, err := LoadConfiguration(file)
		if (c == nil) == (err == nil) {
			t.Fatalf("configuration %v, error %v", c, err)
		}
		if err != nil {
			if !strings.Contains(err.Error(), file) {
				t.Errorf("error does not name the file: %v", err)
			}
			if string(main) == stable+points && !strings.Contains(err.Error(), other) {
				t.Errorf("error does not name the file of the plugin: %v", err)
			}
			return
		}
		// An accepted file has the same content if parsed less strictly.
		var loose admissionConfiguration
		if err := yaml.Unmarshal(main, &loose); err != nil {
			t.Fatalf("accepted, but no YAML: %v", err)
		}
		if !slices.Contains(admissionConfigurations, typeMeta{loose.APIVersion, loose.Kind}) {
			t.Errorf("accepted %s %s", loose.APIVersion, loose.Kind)
		}
		for name, types := range pluginConfigurations {
			var want engineConfiguration
			raw, err := c.Raw(name)
			if err != nil || yaml.Unmarshal(raw, &want) != nil {
				t.Fatalf("accepted, but plugin %s has %q, %v", name, raw, err)
			}
			if raw != nil && !slices.Contains(types, typeMeta{want.APIVersion, want.Kind}) {
				t.Errorf("accepted %s %s", want.APIVersion, want.Kind)
			}
			if got := c.KubeConfigFile(name); got != ptr.Deref(want.KubeConfigFile, "") || got != "" && !filepath.IsAbs(got) {
				t.Errorf("kubeconfig of %s is %q, want %q", name, got, ptr.Deref(want.KubeConfigFile, ""))
			}
		}
	})
}
