package admission

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Configuration is what an AdmissionConfiguration file says. Its zero value
// configures nothing.
type Configuration struct {
	file        string
	plugins     []pluginConfiguration
	kubeConfigs map[string]string
}

type admissionConfiguration struct {
	APIVersion string                `json:"apiVersion"`
	Kind       string                `json:"kind"`
	Plugins    []pluginConfiguration `json:"plugins"`
}

type pluginConfiguration struct {
	Name          string          `json:"name"`
	Path          string          `json:"path"`
	Configuration json.RawMessage `json:"configuration"`
}

type webhookConfiguration struct {
	APIVersion     string `json:"apiVersion"`
	Kind           string `json:"kind"`
	KubeConfigFile string `json:"kubeConfigFile"`
}

type typeMeta struct{ apiVersion, kind string }

var (
	admissionConfigurations = []typeMeta{
		{"apiserver.k8s.io/v1alpha1", "AdmissionConfiguration"},
		{"apiserver.config.k8s.io/v1", "AdmissionConfiguration"},
	}
	webhookConfigurations = []typeMeta{
		{"apiserver.config.k8s.io/v1alpha1", "WebhookAdmission"},
		{"apiserver.config.k8s.io/v1", "WebhookAdmissionConfiguration"},
	}
	// webhookPlugins are those whose configuration is a webhookConfiguration.
	webhookPlugins = []string{MutatingWebhookName, ValidatingWebhookName, GenericWebhookName}
)

// LoadConfiguration reads the file of --admission-control-config-file, YAML or
// JSON (S9.12), and the configurations of the webhook plugins it holds or points
// to (S9.13). An empty file name gives the zero Configuration.
//
// Reading is strict: an unknown or repeated field is an error, and every error
// names the file. Entries of plugins that are not known here are ignored.
func LoadConfiguration(file string) (*Configuration, error) {
	c := &Configuration{file: file, kubeConfigs: map[string]string{}}
	if file == "" {
		return c, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading admission configuration: %w", err)
	}
	var content admissionConfiguration
	if err := unmarshalStrict(data, &content); err != nil {
		return nil, fmt.Errorf("admission configuration %s: %w", file, err)
	}
	if err := checkType(typeMeta{content.APIVersion, content.Kind}, admissionConfigurations); err != nil {
		return nil, fmt.Errorf("admission configuration %s: %w", file, err)
	}
	c.plugins = content.Plugins
	for _, name := range webhookPlugins {
		kubeConfig, err := c.kubeConfig(name)
		if err != nil {
			return nil, fmt.Errorf("admission configuration %s, plugin %s: %w", file, name, err)
		}
		c.kubeConfigs[name] = kubeConfig
	}
	return c, nil
}

// KubeConfigFile returns the absolute name of the kubeconfig whose users the
// webhook plugin of that name authenticates as; empty when it has none (S8.12).
func (c *Configuration) KubeConfigFile(plugin string) string {
	return c.kubeConfigs[plugin]
}

// Plugins names the plugins that the file has entries for, in their order.
func (c *Configuration) Plugins() []string {
	names := make([]string, len(c.plugins))
	for i, p := range c.plugins {
		names[i] = p.Name
	}
	return names
}

// Raw returns the configuration of the plugin of that name as it was written,
// nil when there is none. Of several entries the first counts; what stands in
// the entry itself counts before the file it points to, which is relative to
// the directory of the file it is named in.
func (c *Configuration) Raw(plugin string) ([]byte, error) {
	data, _, err := c.raw(plugin)
	return data, err
}

// raw is Raw, and tells which file the configuration is in, unless it is the main one.
func (c *Configuration) raw(plugin string) (data []byte, file string, err error) {
	i := slices.IndexFunc(c.plugins, func(p pluginConfiguration) bool { return p.Name == plugin })
	if i < 0 {
		return nil, "", nil
	}
	p := c.plugins[i]
	if len(p.Configuration) > 0 && string(p.Configuration) != "null" {
		return p.Configuration, "", nil
	}
	if p.Path == "" {
		return nil, "", nil
	}
	file = p.Path
	if !filepath.IsAbs(file) {
		file = filepath.Join(filepath.Dir(c.file), file)
	}
	if data, err = os.ReadFile(file); err != nil {
		return nil, "", fmt.Errorf("reading plugin configuration: %w", err)
	}
	return data, file, nil
}

func (c *Configuration) kubeConfig(plugin string) (string, error) {
	data, file, err := c.raw(plugin)
	if err != nil || data == nil {
		return "", err
	}
	kubeConfig, err := kubeConfigIn(data)
	if err != nil && file != "" {
		err = fmt.Errorf("%s: %w", file, err)
	}
	return kubeConfig, err
}

// kubeConfigIn reads the configuration of a webhook plugin.
func kubeConfigIn(data []byte) (string, error) {
	var content webhookConfiguration
	if err := unmarshalStrict(data, &content); err != nil {
		return "", err
	}
	if err := checkType(typeMeta{content.APIVersion, content.Kind}, webhookConfigurations); err != nil {
		return "", err
	}
	if f := content.KubeConfigFile; f != "" && !filepath.IsAbs(f) {
		return "", field.Invalid(field.NewPath("kubeConfigFile"), f, "must be an absolute file path")
	}
	return content.KubeConfigFile, nil
}

func checkType(got typeMeta, want []typeMeta) error {
	if slices.Contains(want, got) {
		return nil
	}
	return fmt.Errorf("apiVersion %q, kind %q is unknown: use %s %s or %s %s", got.apiVersion, got.kind,
		want[0].apiVersion, want[0].kind, want[1].apiVersion, want[1].kind)
}

// unmarshalStrict reads YAML, and JSON with it.
func unmarshalStrict(data []byte, into any) error {
	plain, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return err
	}
	strict, err := kjson.UnmarshalStrict(plain, into)
	if err != nil {
		return err
	}
	return errors.Join(strict...)
}
