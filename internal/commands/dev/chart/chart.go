package chart

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/ignore"
	"helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/releaseutil"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
)

// Options select a chart and what its templates see.
type Options struct {
	// Path is the directory of the chart, or its archive. Values are regular files with values; later files take
	// precedence.
	Path   string
	Values []string
	// Release and Namespace are the name and the namespace of the release.
	Release, Namespace string
	// Kubernetes is the version of the cluster, such as v1.37.2. Versions are its group versions and kinds, such as
	// apps/v1 and apps/v1/Deployment.
	Kubernetes string
	Versions   []string
}

// Result is a rendered chart.
type Result struct {
	// Manifests has the YAML documents in the order of 'helm template': CRDs, objects, hooks.
	Manifests string
	// Files are the files of the chart's directory that were read.
	Files []string
	// Notes are sentences about omissions.
	Notes []string
}

// mostDepth bounds the levels of directories, which links can repeat.
const mostDepth = 40

// notes is the suffix of files with text for the user of a release.
const notes = "NOTES.txt"

func (o Options) render(l limits) (*Result, error) {
	r := &Result{}
	c, err := r.load(o.Path, l)
	if err != nil {
		return nil, err
	}
	values, err := o.values()
	if err != nil {
		return nil, err
	}
	if strings.EqualFold(c.Metadata.Type, "library") {
		return nil, errors.New("it is a library chart, which renders nothing: name a chart that uses it")
	}
	if err := chartutil.ProcessDependenciesWithMerge(c, values); err != nil {
		return nil, err
	}
	if missing := missingFrom(c); len(missing) > 0 {
		return nil, fmt.Errorf("its folder charts lacks %s: 'helm dependency build' downloads dependencies", strings.Join(missing, ", "))
	}
	version, err := chartutil.ParseKubeVersion(o.Kubernetes)
	if err != nil {
		return nil, err
	}
	if wanted := c.Metadata.KubeVersion; wanted != "" && !chartutil.IsCompatibleRange(wanted, version.String()) {
		return nil, fmt.Errorf("it needs Kubernetes %s, and this is %s", wanted, version)
	}
	capabilities := chartutil.DefaultCapabilities.Copy()
	capabilities.KubeVersion, capabilities.APIVersions = *version, o.Versions
	in := chartutil.ReleaseOptions{Name: o.Release, Namespace: o.Namespace, Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValuesWithSchemaValidation(c, values, in, capabilities, true)
	if err != nil {
		return nil, err
	}
	merged, err := all.Table("Values")
	if err != nil {
		return nil, err
	}
	if err := r.validate(c, merged); err != nil {
		return nil, err
	}
	rendered, err := engine.Render(c, all)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(rendered, func(file, _ string) bool { return strings.HasSuffix(file, notes) })
	hooks, manifests, err := releaseutil.SortManifests(rendered, nil, releaseutil.InstallOrder)
	if err != nil {
		return nil, err
	}
	var out strings.Builder
	add := func(source, text string) { fmt.Fprintf(&out, "---\n# Source: %s\n%s\n", source, text) }
	for _, crd := range c.CRDObjects() {
		add(crd.Filename, string(crd.File.Data))
	}
	for _, m := range manifests {
		add(m.Name, m.Content)
	}
	for _, h := range hooks {
		if !slices.Contains(h.Events, release.HookTest) {
			add(h.Path, h.Manifest)
		}
	}
	if out.Len() > l.Output {
		return nil, fmt.Errorf("its templates render more than %d MiB", l.Output>>20)
	}
	r.Manifests = out.String()
	return r, nil
}

// values returns the values of the files, merged.
func (o Options) values() (map[string]any, error) {
	all := map[string]any{}
	for _, file := range o.Values {
		data, err := files.Read(file, files.Configuration)
		if err != nil {
			return nil, files.Plain(err)
		}
		values := map[string]any{}
		if err := yaml.Unmarshal(data, &values); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		merge(all, values)
	}
	return all, nil
}

// merge writes values into others, object by object. A null stays, since it removes a default of the chart.
func merge(into, values map[string]any) {
	for key, value := range values {
		inner, _ := value.(map[string]any)
		if before, ok := into[key].(map[string]any); ok && inner != nil {
			merge(before, inner)
			continue
		}
		into[key] = value
	}
}

// missingFrom returns the names of the dependencies that a chart needs and does not have.
func missingFrom(c *chart.Chart) (names []string) {
	for _, d := range c.Metadata.Dependencies {
		if !slices.ContainsFunc(c.Dependencies(), func(has *chart.Chart) bool { return has.Name() == d.Name }) {
			names = append(names, d.Name)
		}
	}
	return names
}

// load reads a chart, and lists its files.
func (r *Result) load(path string, l limits) (*chart.Chart, error) {
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		if err := files.Check(path, loader.MaxDecompressedChartSize); err != nil {
			return nil, files.Cause(err)
		}
		return loader.LoadFile(path)
	}
	rules, err := ignore.ParseFile(filepath.Join(path, ignore.HelmIgnore))
	if errors.Is(err, fs.ErrNotExist) {
		rules, err = ignore.Empty(), nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ignore.HelmIgnore, files.Cause(err))
	}
	rules.AddDefaults()
	d := directory{root: path, rules: rules, left: l.Entries}
	if err := d.read("", 0); err != nil {
		return nil, files.Plain(err)
	}
	for _, f := range d.files {
		r.Files = append(r.Files, filepath.Join(path, f.Name))
	}
	return loader.LoadFiles(d.files)
}

// directory reads the directory of a chart as Helm does, except that links must not lead out of the user's folders.
type directory struct {
	root  string
	rules *ignore.Rules
	files []*loader.BufferedFile
	// left is the number of entries that may follow.
	left int
}

// read adds the files below a directory.
func (d *directory) read(dir string, depth int) error {
	entries, err := os.ReadDir(filepath.Join(d.root, dir))
	if err != nil {
		return err
	}
	if d.left -= len(entries); d.left < 0 {
		return errors.New("it has too many files and directories: list those of no use in " + ignore.HelmIgnore)
	}
	if depth > mostDepth {
		return fmt.Errorf("%s: its directories have more than %d levels", filepath.Join(d.root, dir), mostDepth)
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		at := filepath.Join(d.root, name)
		info, err := os.Stat(at)
		if err != nil {
			if info, _ := e.Info(); info != nil && d.rules.Ignore(name, info) {
				continue
			}
			return err
		}
		if d.rules.Ignore(name, info) {
			continue
		}
		if e.Type()&fs.ModeSymlink != 0 {
			if err := files.CheckFound(at, d.root); err != nil {
				return err
			}
		}
		if info.IsDir() {
			err = d.read(name, depth+1)
		} else {
			err = d.add(name, at)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *directory) add(name, at string) error {
	data, err := files.Read(at, loader.MaxDecompressedFileSize)
	if err != nil {
		return err
	}
	d.files = append(d.files, &loader.BufferedFile{Name: name, Data: bytes.TrimPrefix(data, []byte("\xEF\xBB\xBF"))})
	return nil
}

// validate compares values with the schemas of a chart and of its dependencies. Helm downloads schemas that a schema
// refers to; here they permit everything.
func (r *Result) validate(c *chart.Chart, values map[string]any) error {
	var problems []error
	if c.Schema != nil {
		if err := r.validateBy(c.Schema, values); err != nil {
			problems = append(problems, fmt.Errorf("the values of chart %s: %w", c.Name(), err))
		}
	}
	for _, d := range c.Dependencies() {
		switch of := values[d.Name()].(type) {
		case nil:
		case map[string]any:
			problems = append(problems, r.validate(d, of))
		default:
			problems = append(problems, fmt.Errorf("the values of chart %s: they are not an object", d.Name()))
		}
	}
	return errors.Join(problems...)
}

func (r *Result) validateBy(schema []byte, values map[string]any) error {
	const at = "file:///values.schema.json"
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return fmt.Errorf("values.schema.json: %w", err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(elsewhere{r})
	if err := compiler.AddResource(at, parsed); err != nil {
		return fmt.Errorf("values.schema.json: %w", err)
	}
	compiled, err := compiler.Compile(at)
	if err != nil {
		return fmt.Errorf("values.schema.json: %w", err)
	}
	if err := compiled.Validate(values); err != nil {
		// The first line has the URL of the schema.
		_, reasons, _ := strings.Cut(err.Error(), "\n")
		return errors.New(strings.TrimPrefix(reasons, "- "))
	}
	return nil
}

// mostNotes bounds the notes of a chart, and mostURL a URL in a note, in bytes.
const (
	mostNotes = 20
	mostURL   = 200
)

// elsewhere loads the schemas outside of a chart: each of them permits everything.
type elsewhere struct{ result *Result }

// Load implements jsonschema.URLLoader.
func (e elsewhere) Load(url string) (any, error) {
	url = strings.ToValidUTF8(url[:min(len(url), mostURL)], "")
	note := "values.schema.json: the schema at " + url + " is not downloaded, and no value is compared with it."
	if !slices.Contains(e.result.Notes, note) && len(e.result.Notes) < mostNotes {
		e.result.Notes = append(e.result.Notes, note)
	}
	return true, nil
}
