package command

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	yamlv3 "go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
	"github.com/gatehouse-dev/gatehouse/internal/kit/nearest"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
)

// ConfigFile is the default path of the configuration of check, lint, test and dev.
const ConfigFile = ".gatehouse.yaml"

// The API version and the kind of the configuration file.
const (
	ConfigVersion = "gatehouse.dev/v1alpha1"
	ConfigKind    = "Configuration"
)

// Configuration is the configuration file of a repository. docs/reference/configuration.md and the JSON schema
// next to it are generated from this type.
type Configuration struct {
	APIVersion string             `json:"apiVersion" doc:"gatehouse.dev/v1alpha1"`
	Kind       string             `json:"kind" doc:"Configuration"`
	Exclude    []string           `json:"exclude,omitempty" doc:"patterns of files that check and lint do not read, as in a .gitignore"`
	For        string             `json:"for,omitempty" doc:"server that enforces the webhooks and policies: gatehouse or kubernetes" enum:"gatehouse,kubernetes"`
	Check      CheckConfiguration `json:"check,omitempty" doc:"what gatehouse check does"`
	Lint       LintConfiguration  `json:"lint,omitempty" doc:"what gatehouse lint does"`
	Test       TestConfiguration  `json:"test,omitempty" doc:"what gatehouse test does"`
	Dev        DevConfiguration   `json:"dev,omitempty" doc:"what gatehouse dev runs; gatehouse dev --print writes this section"`

	// File is the path of the configuration file.
	File string
}

// CheckConfiguration is the section of gatehouse check.
type CheckConfiguration struct {
	Exclude            []string            `json:"exclude,omitempty" doc:"patterns of files that check does not read"`
	Skip               []string            `json:"skip,omitempty" doc:"kinds whose objects are not checked: KIND or GROUP/KIND"`
	MissingDefinitions string              `json:"missingDefinitions,omitempty" doc:"treatment of objects of an unknown kind: error, warn or skip" enum:"error,warn,skip"`
	Snapshot           string              `json:"snapshot,omitempty" doc:"file of gatehouse snapshot, relative to this file"`
	AllowUnseen        []string            `json:"allowUnseen,omitempty" doc:"resources of the cluster that need not be read; \"*\" for all"`
	Namespace          string              `json:"namespace,omitempty" doc:"namespace of objects that name none; objects that name another one are then errors"`
	As                 string              `json:"as,omitempty" doc:"user who applies the objects"`
	AsGroups           []string            `json:"asGroups,omitempty" doc:"groups of that user"`
	ServerSide         bool                `json:"serverSide,omitempty" doc:"apply as kubectl apply --server-side does"`
	Accept             []report.Acceptance `json:"accept,omitempty" doc:"findings that do not count"`
}

// LintConfiguration is the section of gatehouse lint.
type LintConfiguration struct {
	Exclude []string            `json:"exclude,omitempty" doc:"patterns of files that lint does not read"`
	Disable []string            `json:"disable,omitempty" doc:"rules that are not checked"`
	Skip    []string            `json:"skip,omitempty" doc:"objects without findings: KIND or KIND/NAME"`
	Level   string              `json:"level,omitempty" doc:"least level of findings that are printed: error, warning or note" enum:"error,warning,note"`
	Accept  []report.Acceptance `json:"accept,omitempty" doc:"findings that do not count"`
}

// TestConfiguration is the section of gatehouse test.
type TestConfiguration struct {
	Engines []string `json:"engines,omitempty" doc:"engines of policies, as for --engine; they are started with --start-programs only. Paths are relative to this file"`
}

// DevConfiguration is the section of gatehouse dev. Paths are relative to the configuration file.
type DevConfiguration struct {
	Manifests        []string     `json:"manifests,omitempty" doc:"files and directories, as for --filename"`
	Kustomizations   []string     `json:"kustomizations,omitempty" doc:"directories of kustomizations, as for --kustomize"`
	Chart            string       `json:"chart,omitempty" doc:"directory or archive of a Helm chart, as for --chart"`
	Values           []string     `json:"values,omitempty" doc:"files with values of the chart, as for --values"`
	AsServiceAccount bool         `json:"asServiceAccount,omitempty" doc:"give the program the rights of its service account"`
	FakeNodes        int          `json:"fakeNodes,omitempty" doc:"number of nodes that are only objects"`
	Watch            []string     `json:"watch,omitempty" doc:"patterns of files whose change restarts the program"`
	Programs         []DevProgram `json:"programs,omitempty" doc:"the programs; missing fields come from the manifests and the Dockerfile"`
}

// DevProgram is a program of gatehouse dev.
type DevProgram struct {
	Service     string        `json:"service,omitempty" doc:"service of the program, as NAMESPACE/NAME; needed if there are several programs"`
	Port        int           `json:"port,omitempty" doc:"port that the program listens on"`
	Directory   string        `json:"directory,omitempty" doc:"working directory"`
	Build       string        `json:"build,omitempty" doc:"shell command that builds the program"`
	Command     []string      `json:"command,omitempty" doc:"the program"`
	Arguments   []string      `json:"arguments,omitempty" doc:"arguments, in place of the arguments of the container"`
	Environment []DevVariable `json:"environment,omitempty" doc:"environment variables, in addition to the container's"`
}

// DevVariable is an environment variable.
type DevVariable struct {
	Name      string    `json:"name" doc:"name of the variable"`
	Value     string    `json:"value,omitempty" doc:"value"`
	ValueFrom DevSource `json:"valueFrom,omitzero" doc:"source of the value, as in a pod"`
}

// DevSource is the source of an environment variable.
type DevSource struct {
	ConfigMapKeyRef  DevKey      `json:"configMapKeyRef,omitzero" doc:"key of a ConfigMap"`
	SecretKeyRef     DevKey      `json:"secretKeyRef,omitzero" doc:"key of a Secret"`
	FieldRef         DevField    `json:"fieldRef,omitzero" doc:"field of the pod"`
	ResourceFieldRef DevResource `json:"resourceFieldRef,omitzero" doc:"resource of the container"`
}

// DevKey is a key of a ConfigMap or a Secret.
type DevKey struct {
	Name     string `json:"name" doc:"name of the object"`
	Key      string `json:"key" doc:"key"`
	Optional bool   `json:"optional,omitempty" doc:"the object or the key may be missing"`
}

// DevField is a field of the pod.
type DevField struct {
	FieldPath string `json:"fieldPath" doc:"path of the field, such as metadata.namespace"`
}

// DevResource is a resource of the container.
type DevResource struct {
	Resource string `json:"resource" doc:"resource, such as limits.memory"`
}

// AddConfigFlag adds the flag that names the configuration file.
func AddConfigFlag(f *pflag.FlagSet, file *string) {
	f.StringVar(file, "config", ConfigFile, "configuration `file`, which need not be there; other flags win over it")
}

// ReadConfiguration reads the configuration file. The file may be absent unless the flag is set.
func ReadConfiguration(cmd *cobra.Command, file string) (*Configuration, error) {
	c := &Configuration{}
	if file == "" {
		return c, nil
	}
	read := files.ReadArgument
	if !cmd.Flags().Changed("config") {
		read = func(file string, limit int64) ([]byte, error) { return files.ReadFound(file, limit) }
	}
	data, err := read(file, files.Configuration)
	if errors.Is(err, fs.ErrNotExist) && !cmd.Flags().Changed("config") {
		return c, nil
	}
	if err == nil {
		err = c.Parse(data)
	}
	if err != nil {
		return nil, Usagef("%s: %w", file, files.Cause(err))
	}
	c.File = file
	return c, nil
}

// Parse parses a configuration. An unknown field is an error with its line and the nearest field name.
func (c *Configuration) Parse(data []byte) error {
	var document yamlv3.Node
	if err := yamlv3.Unmarshal(data, &document); err != nil {
		return err
	}
	if len(bytes.TrimSpace(data)) == 0 || len(document.Content) == 0 {
		return fmt.Errorf("is empty: write apiVersion: %s and kind: %s", ConfigVersion, ConfigKind)
	}
	if err := knownFields(document.Content[0], reflect.TypeFor[Configuration](), ""); err != nil {
		return err
	}
	if err := yaml.UnmarshalStrict(data, c); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "error unmarshaling JSON: while decoding JSON: json: "))
	}
	if c.APIVersion != ConfigVersion || c.Kind != ConfigKind {
		return fmt.Errorf("is of kind %q in version %q: write apiVersion: %s and kind: %s", c.Kind, c.APIVersion, ConfigVersion, ConfigKind)
	}
	for section, list := range map[string][]report.Acceptance{"check": c.Check.Accept, "lint": c.Lint.Accept} {
		for i, a := range list {
			if a.Rule == "" || a.Reason == "" {
				return fmt.Errorf("%s.accept[%d]: rule and reason are needed", section, i)
			}
			if _, err := filepath.Match(a.File, ""); err != nil {
				return fmt.Errorf("%s.accept[%d].file: %q is not a pattern", section, i, a.File)
			}
		}
	}
	return nil
}

// knownFields returns an error about the first unknown field of a type.
func knownFields(n *yamlv3.Node, of reflect.Type, path string) error {
	switch {
	case of.Kind() == reflect.Slice && n.Kind == yamlv3.SequenceNode:
		for i, element := range n.Content {
			if err := knownFields(element, of.Elem(), fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
	case of.Kind() == reflect.Struct && n.Kind == yamlv3.MappingNode:
		types := map[string]reflect.Type{}
		var names []string
		for i := range of.NumField() {
			if name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ","); name != "" {
				types[name] = of.Field(i).Type
				names = append(names, name)
			}
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			field := strings.TrimPrefix(path+"."+key.Value, ".")
			member, ok := types[key.Value]
			if !ok {
				return fmt.Errorf("line %d: unknown field %s%s", key.Line, field, nearest.Suggestion("", key.Value, names))
			}
			if err := knownFields(n.Content[i+1], member, field); err != nil {
				return err
			}
		}
	}
	return nil
}

// Fallback sets the value of a flag from the configuration if the flag is not set and the configured value is
// not zero.
func Fallback[T any](cmd *cobra.Command, flag string, value *T, configured T) {
	if !cmd.Flags().Changed(flag) && !reflect.ValueOf(configured).IsZero() {
		*value = configured
	}
}

// EngineBelow returns an engine of the configuration (NAME, NAME=PATH or PATH) with its path resolved against
// the directory of the file.
func (c *Configuration) EngineBelow(engine string) string {
	if name, path, ok := strings.Cut(engine, "="); ok {
		return name + "=" + c.Below(path)
	}
	if strings.ContainsAny(engine, "./") {
		return c.Below(engine)
	}
	return engine
}

// Below resolves a path of the configuration against the directory of the file.
func (c *Configuration) Below(path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	dir := filepath.Dir(c.File)
	if dir == "." {
		return path
	}
	return filepath.Join(dir, path)
}

// Marshal returns the configuration as YAML.
func (c *Configuration) Marshal() ([]byte, error) {
	shown := struct {
		APIVersion string           `json:"apiVersion"`
		Kind       string           `json:"kind"`
		Dev        DevConfiguration `json:"dev"`
	}{c.APIVersion, c.Kind, c.Dev}
	return yaml.Marshal(shown)
}

// Pod returns the variable as a variable of a pod.
func (v DevVariable) Pod() corev1.EnvVar {
	found := corev1.EnvVar{Name: v.Name, Value: v.Value}
	reference := func(k DevKey) (corev1.LocalObjectReference, string, *bool) {
		return corev1.LocalObjectReference{Name: k.Name}, k.Key, &k.Optional
	}
	from := v.ValueFrom
	switch {
	case from.ConfigMapKeyRef != DevKey{}:
		s := &corev1.ConfigMapKeySelector{}
		s.LocalObjectReference, s.Key, s.Optional = reference(from.ConfigMapKeyRef)
		found.ValueFrom = &corev1.EnvVarSource{ConfigMapKeyRef: s}
	case from.SecretKeyRef != DevKey{}:
		s := &corev1.SecretKeySelector{}
		s.LocalObjectReference, s.Key, s.Optional = reference(from.SecretKeyRef)
		found.ValueFrom = &corev1.EnvVarSource{SecretKeyRef: s}
	case from.FieldRef != DevField{}:
		found.ValueFrom = &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: from.FieldRef.FieldPath}}
	case from.ResourceFieldRef != DevResource{}:
		found.ValueFrom = &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: from.ResourceFieldRef.Resource}}
	}
	return found
}

// DevVariableOf returns a variable of a pod as a variable of the configuration.
func DevVariableOf(v corev1.EnvVar) DevVariable {
	found := DevVariable{Name: v.Name, Value: v.Value}
	if v.ValueFrom == nil {
		return found
	}
	if s := v.ValueFrom.ConfigMapKeyRef; s != nil {
		found.ValueFrom.ConfigMapKeyRef = DevKey{s.Name, s.Key, s.Optional != nil && *s.Optional}
	}
	if s := v.ValueFrom.SecretKeyRef; s != nil {
		found.ValueFrom.SecretKeyRef = DevKey{s.Name, s.Key, s.Optional != nil && *s.Optional}
	}
	if s := v.ValueFrom.FieldRef; s != nil {
		found.ValueFrom.FieldRef = DevField{s.FieldPath}
	}
	if s := v.ValueFrom.ResourceFieldRef; s != nil {
		found.ValueFrom.ResourceFieldRef = DevResource{s.Resource}
	}
	return found
}
