package admission

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission/plugin/manifest"
	"k8s.io/utils/ptr"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/internal/engine/exclusion"
	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
)

// Configuration is the content of an AdmissionConfiguration file. Its zero value configures
// nothing.
type Configuration struct {
	file        string
	plugins     []pluginConfiguration
	kubeConfigs map[string]string
	manifests   map[string]string
	exclusions  *exclusion.Rules
}

type admissionConfiguration struct {
	APIVersion string                `json:"apiVersion"`
	Kind       string                `json:"kind"`
	Plugins    []pluginConfiguration `json:"plugins"`
	// ExclusionRules is an extension of Gatehouse (S23.1).
	ExclusionRules []exclusion.Rule `json:"exclusionRules"`
}

type pluginConfiguration struct {
	Name          string          `json:"name"`
	Path          string          `json:"path"`
	Configuration json.RawMessage `json:"configuration"`
}

// engineConfiguration is the configuration of a plugin of the engine. The configurations of the
// policy plugins have no kubeConfigFile.
type engineConfiguration struct {
	APIVersion         string  `json:"apiVersion"`
	Kind               string  `json:"kind"`
	KubeConfigFile     *string `json:"kubeConfigFile"`
	StaticManifestsDir *string `json:"staticManifestsDir"`
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
	// pluginConfigurations are the supported types for the configuration of each plugin of the
	// engine.
	pluginConfigurations = map[string][]typeMeta{
		MutatingWebhookName: webhookConfigurations, ValidatingWebhookName: webhookConfigurations, GenericWebhookName: webhookConfigurations,
		MutatingPolicyName:   {{"apiserver.config.k8s.io/v1", "MutatingAdmissionPolicyConfiguration"}},
		ValidatingPolicyName: {{"apiserver.config.k8s.io/v1", "ValidatingAdmissionPolicyConfiguration"}},
	}
)

// LoadConfiguration reads the file of --admission-control-config-file, YAML or JSON (S9.12), and
// the configurations of the engine's plugins in the file or in files that it references (S9.13,
// S21.1). An empty file name gives the zero Configuration.
//
// Reading is strict: an unknown or repeated field is an error, and every error names the file.
// Entries of plugins that the engine does not have are ignored.
func LoadConfiguration(file string) (*Configuration, error) {
	c, err := load(file)
	return c, files.Shorten(err)
}

func load(file string) (*Configuration, error) {
	c := &Configuration{file: file, kubeConfigs: map[string]string{}, manifests: map[string]string{}}
	if file == "" {
		return c, nil
	}
	data, err := files.Read(file, files.Configuration)
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
	if c.exclusions, err = exclusion.New(content.ExclusionRules); err != nil {
		return nil, fmt.Errorf("admission configuration %s: %w", file, err)
	}
	for _, name := range slices.Sorted(maps.Keys(pluginConfigurations)) {
		if err := c.configure(name); err != nil {
			return nil, fmt.Errorf("admission configuration %s, plugin %s: %w", file, name, err)
		}
	}
	return c, nil
}

// KubeConfigFile returns the absolute name of the kubeconfig with the users of a webhook plugin;
// empty if none is configured (S8.12).
func (c *Configuration) KubeConfigFile(plugin string) string {
	return c.kubeConfigs[plugin]
}

// StaticManifestsDir returns the absolute name of the directory with the manifests of a plugin;
// empty if none is configured (S21.2).
func (c *Configuration) StaticManifestsDir(plugin string) string { return c.manifests[plugin] }

// Exclusions returns the exclusion rules; nil if there are none (S23). The rules take effect when
// snapshot.Options.Local returns them as part of a Local (Local.WithExclusions).
func (c *Configuration) Exclusions() *exclusion.Rules { return c.exclusions }

// SameExclusions reports whether another configuration has the same exclusion rules.
func (c *Configuration) SameExclusions(other *Configuration) bool {
	return reflect.DeepEqual(c.exclusions.List(), other.exclusions.List())
}

// Plugins returns the names of the plugins in the file, in their order.
func (c *Configuration) Plugins() []string {
	names := make([]string, len(c.plugins))
	for i, p := range c.plugins {
		names[i] = p.Name
	}
	return names
}

// Raw returns the unparsed configuration of a plugin; nil if there is none. The first of several
// entries counts. A configuration in the entry itself takes precedence over a file that the entry
// references. The path of that file is relative to the directory of the referencing file.
func (c *Configuration) Raw(plugin string) ([]byte, error) {
	data, _, err := c.raw(plugin)
	return data, err
}

// raw is Raw, and also returns the name of the file with the configuration, unless it is the main
// file.
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
	if data, err = files.Read(file, files.Configuration); err != nil {
		return nil, "", fmt.Errorf("reading plugin configuration: %w", err)
	}
	return data, file, nil
}

// configure reads the configuration of a plugin of the engine.
func (c *Configuration) configure(plugin string) error {
	data, file, err := c.raw(plugin)
	if err != nil || data == nil {
		return err
	}
	content, err := read(plugin, data)
	if err != nil {
		if file != "" {
			err = fmt.Errorf("%s: %w", file, err)
		}
		return err
	}
	c.kubeConfigs[plugin], c.manifests[plugin] = ptr.Deref(content.KubeConfigFile, ""), ptr.Deref(content.StaticManifestsDir, "")
	return nil
}

// read parses and checks the configuration of a plugin of the engine.
func read(plugin string, data []byte) (*engineConfiguration, error) {
	content := &engineConfiguration{}
	if err := unmarshalStrict(data, content); err != nil {
		return nil, err
	}
	types, got := pluginConfigurations[plugin], typeMeta{content.APIVersion, content.Kind}
	for _, others := range pluginConfigurations {
		if slices.Contains(others, got) && !slices.Contains(types, got) {
			return nil, fmt.Errorf("unexpected type: %s; use %s", got, alternatives(types))
		}
	}
	if err := checkType(got, types); err != nil {
		return nil, err
	}
	switch {
	case content.KubeConfigFile != nil && len(types) == 1:
		return nil, errors.New(`strict decoding error: unknown field "kubeConfigFile"`)
	case content.StaticManifestsDir != nil && got == webhookConfigurations[0]:
		return nil, errors.New(`strict decoding error: unknown field "staticManifestsDir"`)
	}
	if f := ptr.Deref(content.KubeConfigFile, ""); f != "" && !filepath.IsAbs(f) {
		return nil, field.Invalid(field.NewPath("kubeConfigFile"), f, "must be an absolute file path")
	}
	dir := ptr.Deref(content.StaticManifestsDir, "")
	if dir != "" && plugin == GenericWebhookName {
		return nil, field.Invalid(field.NewPath("staticManifestsDir"), dir, "external hooks have no url, so that no manifest file can have one; remove the field")
	}
	return content, manifest.ValidateStaticManifestsDir(dir)
}

// String returns the type as messages name it.
func (t typeMeta) String() string { return t.apiVersion + " " + t.kind }

func alternatives(types []typeMeta) string {
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = t.String()
	}
	return strings.Join(names, " or ")
}

func checkType(got typeMeta, want []typeMeta) error {
	if slices.Contains(want, got) {
		return nil
	}
	return fmt.Errorf("apiVersion %q, kind %q is unknown: use %s", got.apiVersion, got.kind, alternatives(want))
}

// unmarshalStrict reads YAML or JSON.
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
