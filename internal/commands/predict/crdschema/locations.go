package crdschema

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
)

// Default is the location of the schemas of built-in kinds, which are never read: a server has them.
const Default = "default"

// layout is the path of a schema below a location without a file name, as kubeconform has it.
const layout = "/{{ .NormalizedKubernetesVersion }}-standalone{{ .StrictSuffix }}/{{ .ResourceKind }}{{ .KindSuffix }}.json"

// variables are the template variables of a location, as kubeconform has them.
type variables struct {
	NormalizedKubernetesVersion, StrictSuffix, ResourceKind, ResourceAPIVersion, Group, KindSuffix string
}

// variablesOf returns the variables for a kind. release is a version such as 1.37.2.
func variablesOf(kind schema.GroupVersionKind, release string) variables {
	v := variables{
		NormalizedKubernetesVersion: "v" + strings.TrimPrefix(release, "v"), StrictSuffix: "-strict",
		ResourceKind: strings.ToLower(kind.Kind), ResourceAPIVersion: kind.Version, Group: kind.Group,
	}
	if kind.Group == "" {
		v.Group = kind.Version
		v.KindSuffix = "-" + strings.ToLower(kind.Version)
		return v
	}
	first, _, _ := strings.Cut(kind.Group, ".")
	v.KindSuffix = "-" + strings.ToLower(first) + "-" + strings.ToLower(kind.Version)
	return v
}

// location is one value of --schema-location. Either has is set, for CRDs, or schemas, or both for a folder.
type location struct {
	text    string
	has     map[schema.GroupKind]*unstructured.Unstructured
	schemas *template.Template
	remote  bool
}

// Locations finds CRDs and schemas of custom resources. It is used by one goroutine.
type Locations struct {
	list    []location
	release string
	fetcher *fetcher
	// Accepts returns the error with which a server rejects a CRD made from a JSON schema. If it is nil, each is accepted.
	Accepts func(context.Context, *unstructured.Unstructured) error
}

// Open reads the CRDs of the locations, and checks the others without reading them. release is the Kubernetes release of
// the template variables.
func Open(values []string, release string) (*Locations, error) {
	l := &Locations{release: release, fetcher: newFetcher()}
	for _, value := range values {
		if value == Default {
			continue
		}
		one, err := open(value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", value, err)
		}
		l.list = append(l.list, one)
	}
	return l, nil
}

// open reads one location.
func open(value string) (location, error) {
	l := location{text: value, remote: strings.HasPrefix(value, "https://") || strings.HasPrefix(value, "http://")}
	if !l.remote && !strings.Contains(value, "{{") {
		info, err := os.Stat(value)
		switch {
		case err != nil:
			return l, files.Plain(err)
		case info.IsDir() && isTree(value):
		case info.IsDir() || !strings.HasSuffix(value, ".json"):
			if l.has, err = definitionsIn(value, info.IsDir()); err != nil || !info.IsDir() {
				return l, err
			}
		default:
			if l.has, err = definitionsIn(value, false); err == nil && len(l.has) > 0 {
				return l, nil
			}
		}
	}
	path := value
	if !strings.HasSuffix(path, "json") {
		path = strings.TrimSuffix(path, "/") + layout
	}
	var err error
	if l.schemas, err = template.New("location").Option("missingkey=error").Parse(path); err == nil {
		_, err = l.path(variablesOf(schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, "1"))
	}
	return l, err
}

// isTree reports whether a folder has the layout of a tree of JSON schemas, which may have very many files.
func isTree(dir string) bool {
	found, err := filepath.Glob(filepath.Join(dir, "*-standalone*"))
	return err == nil && len(found) > 0
}

// path returns the path or the URL of a schema.
func (l *location) path(v variables) (string, error) {
	var b strings.Builder
	err := l.schemas.Execute(&b, v)
	return b.String(), err
}

// definitionsIn returns the CRDs of a folder, an archive or a file.
func definitionsIn(path string, folder bool) (map[schema.GroupKind]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	if archive := archived(path); archive != nil && !folder {
		read, err := archive(path)
		if err != nil {
			return nil, err
		}
		objects = read
	} else {
		set, err := manifests.Read([]string{path}, nil)
		if err != nil {
			return nil, err
		}
		objects = set.Unstructured()
		if len(objects) == 0 && !folder {
			// A snapshot has its objects in a field.
			objects = snapshotted(path)
		}
	}
	has := map[schema.GroupKind]*unstructured.Unstructured{}
	for _, u := range objects {
		if u.GroupVersionKind().Group == "apiextensions.k8s.io" && u.GetKind() == "CustomResourceDefinition" {
			group, _, _ := unstructured.NestedString(u.Object, "spec", "group")
			kind, _, _ := unstructured.NestedString(u.Object, "spec", "names", "kind")
			if id := (schema.GroupKind{Group: group, Kind: kind}); has[id] == nil {
				has[id] = u
			}
		}
	}
	if len(has) == 0 && !folder {
		return nil, errors.New("it has no CustomResourceDefinition")
	}
	return has, nil
}

// Definitions returns all CRDs of the locations, the first one of each kind.
func (l *Locations) Definitions() (list []*unstructured.Unstructured) {
	seen := map[schema.GroupKind]bool{}
	for i := range l.list {
		for id, u := range l.list[i].has {
			if !seen[id] {
				seen[id] = true
				list = append(list, u)
			}
		}
	}
	slices.SortFunc(list, func(a, b *unstructured.Unstructured) int { return strings.Compare(a.GetName(), b.GetName()) })
	return list
}

// Found are the CRDs of kinds.
type Found struct {
	Definitions []*unstructured.Unstructured
	// Guessed are the kinds whose plural and scope are a guess, because only a JSON schema describes them.
	Guessed []Guess
	// Notes are sentences about locations that could not be read.
	Notes []string
}

// Guess is a kind whose plural and scope are a guess.
type Guess struct {
	Kind       schema.GroupKind
	Plural     string
	Namespaced bool
	// From is the place of the schema.
	From string
}

// Note describes the guess, and the parts of a definition that a JSON schema may lack.
func (g *Guess) Note() string {
	scope := "cluster-scoped"
	if g.Namespaced {
		scope = "namespaced"
	}
	return fmt.Sprintf("%s of %s comes from a JSON schema, %s: assuming the %s resource %s; CEL rules, defaults and immutable fields may be missing", g.Kind.Kind, g.Kind.Group, g.From, scope, g.Plural)
}

// Find returns the CRDs of kinds that no location but these defines: a CRD if there is one, and otherwise one made from
// JSON schemas, in the order of the locations. Kinds that no location has are left out.
func (l *Locations) Find(ctx context.Context, kinds []schema.GroupVersionKind) (*Found, error) {
	found := &Found{}
	versions := map[schema.GroupKind][]string{}
	var order []schema.GroupKind
	for _, kind := range kinds {
		id := kind.GroupKind()
		if versions[id] == nil {
			order = append(order, id)
		}
		if !slices.Contains(versions[id], kind.Version) {
			versions[id] = append(versions[id], kind.Version)
		}
	}
	noted := map[string]bool{}
	for _, id := range order {
		if !named(id) {
			continue
		}
		if i := slices.IndexFunc(l.list, func(one location) bool { return one.has[id] != nil }); i >= 0 {
			found.Definitions = append(found.Definitions, l.list[i].has[id])
			continue
		}
		made, guess := &Kind{Group: id.Group, Kind: id.Kind}, Guess{Kind: id}
		for _, version := range versions[id] {
			if len(validation.IsDNS1035Label(version)) > 0 {
				continue
			}
			of, from, notes := l.schemaOf(ctx, id.WithVersion(version))
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			for _, note := range notes {
				if !noted[note] {
					noted[note] = true
					found.Notes = append(found.Notes, note)
				}
			}
			if of != nil {
				made.Versions = append(made.Versions, Version{Name: version, Schema: of, Status: hasStatus(of)})
				guess.From = from
			}
		}
		if len(made.Versions) == 0 {
			continue
		}
		plural, _ := meta.UnsafeGuessKindToResource(id.WithVersion(""))
		made.Plural, made.Namespaced = plural.Resource, !strings.HasPrefix(id.Kind, "Cluster")
		guess.Plural, guess.Namespaced = made.Plural, made.Namespaced
		definition, note := l.acceptable(ctx, made)
		if note != "" {
			found.Notes = append(found.Notes, note)
		}
		found.Definitions, found.Guessed = append(found.Definitions, definition), append(found.Guessed, guess)
	}
	return found, nil
}

// named reports whether a kind has names that an API server allows. Others could lead a path out of its folder.
func named(id schema.GroupKind) bool {
	return len(validation.IsDNS1035Label(strings.ToLower(id.Kind))) == 0 && len(validation.IsDNS1123Subdomain(id.Group)) == 0
}

// hasStatus reports whether a schema has a status.
func hasStatus(of map[string]any) bool {
	properties, _ := of["properties"].(map[string]any)
	return properties["status"] != nil
}

// acceptable returns a CRD that a server accepts. A schema that it does not accept is replaced by one for any object.
func (l *Locations) acceptable(ctx context.Context, k *Kind) (*unstructured.Unstructured, string) {
	made := k.Definition()
	if l.Accepts == nil {
		return made, ""
	}
	err := l.Accepts(ctx, made)
	if err == nil {
		return made, ""
	}
	for i := range k.Versions {
		k.Versions[i].Schema = nil
	}
	return k.Definition(), fmt.Sprintf("the JSON schema of %s of %s is not used: %v", k.Kind, k.Group, err)
}

// schemaOf returns the first schema of a kind in the locations, and its place. notes name the locations that could not
// be read.
func (l *Locations) schemaOf(ctx context.Context, kind schema.GroupVersionKind) (of map[string]any, from string, notes []string) {
	for i := range l.list {
		one := &l.list[i]
		if one.schemas == nil {
			continue
		}
		path, err := one.path(variablesOf(kind, l.release))
		var data []byte
		switch {
		case err != nil:
		case one.remote:
			data, err = l.fetcher.get(ctx, path)
		default:
			data, err = files.ReadArgument(path, maxSchema)
		}
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			notes = append(notes, "--schema-location: "+err.Error())
			continue
		}
		if of = FromJSONSchema(data); of != nil {
			return of, filepath.ToSlash(path), notes
		}
		notes = append(notes, fmt.Sprintf("--schema-location: %s has no JSON schema of an object", one.text))
	}
	return nil, "", notes
}
