package recipe

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
	"github.com/gatehouse-dev/gatehouse/internal/kit/nearest"
)

// The type of a recipe.
const (
	Version = "gatehouse.dev/v1alpha1"
	Kind    = "AdmissionEngine"
)

// Recipe describes how a policy engine is run next to a stage.
type Recipe struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	// Program is the file name of the program in the engine's directory, ${PROGRAM} in Command.
	Program string `json:"program"`
	// Command starts the engine. Command, Env and Ready may contain ${PROGRAM}, ${DIR} (the directory of the engine),
	// ${KUBECONFIG}, ${CERT_DIR}, ${PORT}, ${HEALTH_PORT} and ${TMPDIR}.
	Command []string          `json:"command"`
	Env     map[string]string `json:"env,omitempty"`
	// Manifests are the files that install the engine, in its directory. Objects come after them, and override them.
	Manifests []string         `json:"manifests,omitempty"`
	Objects   []map[string]any `json:"objects,omitempty"`
	// Service is the service of its webhooks, NAMESPACE/NAME.
	Service string `json:"service"`
	// Ready is a URL that responds with 200 when the engine is ready; without one, the engine is ready when it listens.
	Ready string `json:"ready,omitempty"`
	// Policies are the kinds of the engine's policies.
	Policies []Policies `json:"policies"`
	// Answers are regular expressions with a group "policy", which find the names of policies in the message of a
	// denial.
	Answers []string `json:"answers,omitempty"`
	// Note describes the features of the engine that tests do not cover.
	Note string `json:"note,omitempty"`

	// Dir is the directory of the engine, and Path the file of its program, as found by Read.
	Dir  string `json:"-"`
	Path string `json:"-"`

	answers []*regexp.Regexp
}

// Policies are kinds of an engine's policies. They are stored in the order of the recipe.
type Policies struct {
	Group string `json:"group"`
	// Kinds lists the kinds; empty means all of the group.
	Kinds []string `json:"kinds,omitempty"`
	// Set are the fields that make a policy reject violations: values by paths such as
	// spec.rules[].validate.failureAction. A field whose parent is absent is skipped.
	Set map[string]any `json:"set,omitempty"`
	// Ready is a CEL expression that is true when the engine applies the policy in the variable object.
	Ready string `json:"ready,omitempty"`

	applied cel.Program
}

//go:embed builtin/*.yaml
var builtin embed.FS

// names returns the names of the built-in recipes.
func names() []string {
	entries, err := builtin.ReadDir("builtin")
	if err != nil {
		panic(err)
	}
	var list []string
	for _, e := range entries {
		list = append(list, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	return list
}

// Read reads the recipe given on a command line: NAME, or NAME=PATH, where PATH is the directory of the engine or its
// program, or the path of a file with a recipe.
func Read(text string) (*Recipe, error) {
	name, at, _ := strings.Cut(text, "=")
	var data []byte
	var err error
	dir := at
	switch {
	case slices.Contains(names(), name):
		data, err = builtin.ReadFile("builtin/" + name + ".yaml")
	case strings.ContainsAny(name, `/.\`) && at == "":
		data, err = files.ReadArgument(name, files.Configuration)
		dir = filepath.Dir(name)
	default:
		return nil, fmt.Errorf("there is no engine %q%s: the program knows %s, and reads others from a file, such as ./engine.yaml", name, nearest.Suggestion("", name, names()), strings.Join(names(), " and "))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, files.Cause(err))
	}
	r := &Recipe{}
	if err := yaml.UnmarshalStrict(data, r); err != nil {
		return nil, fmt.Errorf("%s: %s", name, strings.TrimPrefix(err.Error(), "error unmarshaling JSON: while decoding JSON: json: "))
	}
	if err := r.compile(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if err := r.find(dir); err != nil {
		return nil, err
	}
	return r, nil
}

var service = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z]([-a-z0-9]*[a-z0-9])?$`)

// compile checks a recipe.
func (r *Recipe) compile() error {
	switch {
	case r.APIVersion != Version || r.Kind != Kind:
		return fmt.Errorf("is of kind %q in version %q: write apiVersion: %s and kind: %s", r.Kind, r.APIVersion, Version, Kind)
	case r.Name == "":
		return errors.New("name: the engine has no name")
	case len(r.Command) == 0:
		return errors.New("command: nothing starts the engine")
	case !service.MatchString(r.Service):
		return fmt.Errorf("service: %q is not NAMESPACE/NAME", r.Service)
	case len(r.Policies) == 0:
		return errors.New("policies: the engine has no kinds of policies")
	}
	if r.Ready != "" {
		u, err := url.Parse(os.Expand(r.Ready, func(string) string { return "1" }))
		if err != nil || u.Hostname() != "127.0.0.1" || u.Scheme != "http" && u.Scheme != "https" {
			return fmt.Errorf("ready: %q is not a URL of this machine, such as https://127.0.0.1:${PORT}/readyz", r.Ready)
		}
	}
	base, err := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Env(environment.StoredExpressions)
	if err != nil {
		return err
	}
	env, err := base.Extend(cel.Variable("object", cel.DynType))
	if err != nil {
		return err
	}
	for i := range r.Policies {
		p := &r.Policies[i]
		if p.Group == "" {
			return fmt.Errorf("policies[%d].group: there is none", i)
		}
		if p.Ready == "" {
			continue
		}
		ast, issues := env.Compile(p.Ready)
		if issues.Err() != nil {
			return fmt.Errorf("policies[%d].ready: %w", i, issues.Err())
		}
		if p.applied, err = env.Program(ast, cel.CostLimit(1_000_000)); err != nil {
			return fmt.Errorf("policies[%d].ready: %w", i, err)
		}
	}
	for i, text := range r.Answers {
		expression, err := regexp.Compile(text)
		if err == nil && expression.SubexpIndex(policyGroup) < 0 {
			err = errors.New("it has no group (?P<policy>...)")
		}
		if err != nil {
			return fmt.Errorf("answers[%d]: %w", i, err)
		}
		r.answers = append(r.answers, expression)
	}
	return nil
}

// policyGroup is the group of Answers.
const policyGroup = "policy"

// find finds the files of an engine in a directory, or next to its program; without either, in the user's cache.
func (r *Recipe) find(at string) error {
	build := ""
	if at == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return err
		}
		at, build = filepath.Join(cache, "gatehouse", "engines", r.Name), ": docs/suites.md says in \"With the real engine\" how to build it there; or name its directory with --engine "+r.Name+"=PATH"
	}
	at, err := filepath.Abs(at)
	if err != nil {
		return err
	}
	r.Dir, r.Path = at, filepath.Join(at, cmp.Or(r.Program, r.Name))
	if info, err := os.Stat(at); err == nil && !info.IsDir() {
		r.Dir, r.Path = filepath.Dir(at), at
	}
	needed := make([]string, 0, 1+len(r.Manifests))
	if r.Program != "" {
		needed = append(needed, r.Path)
	}
	for _, name := range r.Manifests {
		needed = append(needed, filepath.Join(r.Dir, name))
	}
	for _, file := range needed {
		if _, err := os.Stat(file); err != nil {
			return fmt.Errorf("the engine %s: %s is not there%s", r.Name, file, build)
		}
	}
	return nil
}

// Judges reports whether the engine has policies of a kind.
func (r *Recipe) Judges(apiVersion, kind string) bool { return r.Place(apiVersion, kind) >= 0 }

// Place returns the index of a kind in Policies; -1 if the engine has no policies of it.
func (r *Recipe) Place(apiVersion, kind string) int {
	group, _, _ := strings.Cut(apiVersion, "/")
	return slices.IndexFunc(r.Policies, func(p Policies) bool {
		return p.Group == group && (len(p.Kinds) == 0 || slices.Contains(p.Kinds, kind))
	})
}

// Named returns the policies named by the message of a denial.
func (r *Recipe) Named(message string) (policies []string) {
	for _, expression := range r.answers {
		for _, m := range expression.FindAllStringSubmatch(message, -1) {
			if name := m[expression.SubexpIndex(policyGroup)]; !slices.Contains(policies, name) {
				policies = append(policies, name)
			}
		}
	}
	return policies
}

// Applied reports whether Ready is true for a policy, as the engine has last written it. A field that is absent makes it
// false.
func (p *Policies) Applied(ctx context.Context, policy map[string]any) bool {
	value, _, err := p.applied.ContextEval(ctx, map[string]any{"object": policy})
	return err == nil && value.Value() == true
}

// Enforce puts a policy into enforcing mode.
func (p *Policies) Enforce(content map[string]any) {
	for path, value := range p.Set {
		set(content, strings.Split(path, "."), value)
	}
}

// set sets a field, in each element of the lists on its path.
func set(within any, path []string, value any) {
	m, ok := within.(map[string]any)
	if !ok {
		return
	}
	if len(path) == 1 {
		if value == nil {
			delete(m, path[0])
		} else {
			m[path[0]] = value
		}
		return
	}
	name, list := strings.CutSuffix(path[0], "[]")
	if !list {
		set(m[name], path[1:], value)
		return
	}
	elements, _ := m[name].([]any)
	for _, e := range elements {
		set(e, path[1:], value)
	}
}
