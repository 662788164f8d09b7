package manifests

import (
	"cmp"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/go-openapi/jsonpointer"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/internal/kit/aliases"
	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
)

// isKustomization reports whether a file configures kustomize.
func isKustomization(path string) bool {
	return slices.Contains([]string{"kustomization.yaml", "kustomization.yml", "Kustomization"}, filepath.Base(path))
}

// kustomization records a kustomization, and its patches, which are parts of objects.
func (r *reader) kustomization(path string) {
	dir := filepath.Dir(path)
	r.set.Kustomized = true
	r.set.Notes = append(r.set.Notes, Note{File: path, Message: "a kustomization is not built: " + outputOf("kubectl kustomize", dir)})
	data, err := files.Read(path, files.Configuration)
	if err != nil {
		r.set.Problems = append(r.set.Problems, Problem{File: path, Message: files.Cause(err).Error()})
		return
	}
	var content struct {
		Namespace                    string
		Resources, Bases, Components []string
		Patches                      []patch
		PatchesJSON6902              []patch  `json:"patchesJson6902"`
		PatchesStrategicMerge        []string `json:"patchesStrategicMerge"`
		Replicas                     []struct {
			Name  string
			Count int64
		}
		Replacements      []struct{ Targets []struct{ Select about } }
		CommonAnnotations map[string]string `json:"commonAnnotations"`
	}
	if err = aliases.Check(data, files.Configuration); err == nil {
		err = yaml.Unmarshal(data, &content)
	}
	if err != nil {
		r.set.Problems = append(r.set.Problems, Problem{File: path, Line: max(1, LineOf(err)), Message: strings.TrimPrefix(err.Error(), "error converting YAML to JSON: ")})
		return
	}
	for _, one := range slices.Concat(content.Resources, content.Bases, content.Components) {
		r.resources[dir] = append(r.resources[dir], filepath.Join(dir, filepath.FromSlash(one)))
	}
	// A kustomization of remote resources alone is about no file.
	if slices.ContainsFunc(r.resources[dir], func(name string) bool { _, err := os.Stat(name); return err == nil }) && len(content.Resources) > 0 {
		r.builds[dir] = path
	}
	r.named[dir] = content.Namespace != ""
	patches := slices.Concat(content.Patches, content.PatchesJSON6902)
	for _, one := range content.PatchesStrategicMerge {
		if strings.Contains(one, "\n") {
			patches = append(patches, patch{Patch: one})
		} else {
			patches = append(patches, patch{Path: one})
		}
	}
	read := map[string][]Patch{}
	for _, p := range patches {
		if p.Path != "" {
			name := filepath.Join(dir, filepath.FromSlash(p.Path))
			r.patches[name] = path
			// Many patches may refer to one file.
			of, known := read[name]
			if !known {
				if data, err := files.ReadFound(name, files.Configuration, dir); err == nil {
					of = changed(string(data))
				}
				read[name] = of
			}
			r.changes(path, &p, of)
			continue
		}
		r.changes(path, &p, changed(p.Patch))
	}
	for _, one := range content.Replicas {
		for _, kind := range []string{"Deployment", "StatefulSet"} {
			r.set.Patched = append(r.set.Patched, Patch{Kustomization: path, Replicas: one.Count, about: about{Kind: kind, Name: one.Name}})
		}
	}
	if len(content.CommonAnnotations) > 0 {
		r.set.Patched = append(r.set.Patched, Patch{Kustomization: path, Annotations: content.CommonAnnotations})
	}
	for _, replacement := range content.Replacements {
		for _, target := range replacement.Targets {
			r.set.Patched = append(r.set.Patched, Patch{Kustomization: path, about: target.Select})
		}
	}
}

// patch is a patch in a kustomization.
type patch struct {
	Path, Patch string
	Target      *about
}

// about selects the objects of a patch. An empty field matches any object; others are regular expressions, or label
// selectors.
type about struct {
	Group, Version, Kind, Name, Namespace string
	LabelSelector, AnnotationSelector     string
}

// selects reports whether the selector matches an object. A kustomization may add a prefix to the object's name.
func (a *about) selects(u *unstructured.Unstructured) bool {
	kind := u.GroupVersionKind()
	return fits(a.Group, kind.Group) && fits(a.Version, kind.Version) && fits(a.Kind, kind.Kind) && fits(a.Namespace, u.GetNamespace()) &&
		(fits(a.Name, u.GetName()) || strings.HasSuffix(a.Name, u.GetName())) && chosen(a.LabelSelector, u.GetLabels()) && chosen(a.AnnotationSelector, u.GetAnnotations())
}

// chosen reports whether a selector, which may be empty, matches labels or annotations.
func chosen(selector string, set labels.Set) bool {
	parsed, err := labels.Parse(selector)
	return err == nil && parsed.Matches(set)
}

// fits reports whether a field of a selector matches a value.
func fits(pattern, value string) bool {
	// Most patterns are names, which need no compiling for each object.
	if regexp.QuoteMeta(pattern) == pattern {
		return pattern == "" || pattern == value
	}
	whole, err := regexp.Compile("^(?:" + pattern + ")$")
	return err == nil && whole.MatchString(value)
}

// Patch records that a kustomization changes an object: more than its metadata, or its annotations.
type Patch struct {
	// Kustomization is the kustomization file.
	Kustomization string
	// Annotations are the new annotations if nothing else is changed; otherwise nil.
	Annotations map[string]string
	// Replicas is the new number of replicas; 0 if the patch does not change it.
	Replicas int64
	about
	// files are the files that the kustomization builds on.
	files map[string]bool
}

// Changes reports whether the patch changes an object.
func (p *Patch) Changes(o *Object) bool {
	return p.files[filepath.Clean(o.File)] && p.selects(o.Unstructured())
}

// builtOn returns the files that the kustomization of a directory builds on, directly and through other
// kustomizations.
func (r *reader) builtOn(dir string) map[string]bool {
	found, waiting := map[string]bool{}, []string{dir}
	for len(waiting) > 0 {
		next := waiting[0]
		waiting = waiting[1:]
		if !found[next] {
			found[next] = true
			waiting = append(waiting, r.resources[next]...)
		}
	}
	return found
}

// unused finds the files that no kustomization reads.
func (r *reader) unused() {
	r.set.Unused = map[string]string{}
	used, elsewhere, builds := map[string]bool{}, map[string]bool{}, slices.Sorted(maps.Values(r.builds))
	for in, list := range r.resources {
		for _, name := range list {
			used[name] = true
			elsewhere[name] = elsewhere[name] || in != filepath.Dir(name) || r.named[in]
		}
	}
	for _, file := range r.set.Files {
		name := filepath.Clean(file)
		dir := filepath.Dir(name)
		switch own := r.builds[dir]; {
		case len(builds) > 0 && !used[name]:
			r.set.Unused[name] = cmp.Or(own, builds[0])
		case len(builds) > 1 && !elsewhere[name] && !used[dir]:
			// No kustomization builds on its own one, which sets no namespace.
			r.set.Unused[name] = builds[(slices.Index(builds, own)+1)%len(builds)]
		}
	}
}

// changes records the objects that a patch changes. of are the objects that its text changes.
func (r *reader) changes(kustomization string, p *patch, of []Patch) {
	for _, to := range of {
		if p.Target != nil {
			to.about = *p.Target
		}
		if to.Kustomization = kustomization; to.Kind != "" || p.Target != nil {
			r.set.Patched = append(r.set.Patched, to)
		}
	}
}

// changed returns the objects that the text of a patch changes, if it changes more than their metadata, or sets
// annotations. A JSON patch names none.
func changed(text string) (list []Patch) {
	for _, part := range split([]byte(text)) {
		var content any
		if aliases.Check(part.text, files.Configuration) != nil || yaml.Unmarshal(part.text, &content) != nil {
			continue
		}
		to, more := Patch{}, false
		switch content := content.(type) {
		case map[string]any:
			to.Kind, _ = content["kind"].(string)
			metadata, _ := content["metadata"].(map[string]any)
			to.Name, _ = metadata["name"].(string)
			to.Annotations, _, _ = unstructured.NestedStringMap(content, "metadata", "annotations")
			spec, _ := content["spec"].(map[string]any)
			to.Replicas = whole(spec["replicas"])
			for key := range content {
				more = more || !slices.Contains([]string{"apiVersion", "kind", "metadata"}, key)
			}
		case []any:
			for _, one := range content {
				operation, _ := one.(map[string]any)
				at, _ := operation["path"].(string)
				more = more || !strings.HasPrefix(at, "/metadata/")
				key, isKey := strings.CutPrefix(at, "/metadata/annotations/")
				switch value := operation["value"].(type) {
				case string:
					if isKey {
						to.annotate(map[string]string{jsonpointer.Unescape(key): value})
					}
				case map[string]any:
					if at == "/metadata/annotations" {
						set, _, _ := unstructured.NestedStringMap(operation, "value")
						to.annotate(set)
					}
				}
				if at == "/spec/replicas" {
					to.Replicas = whole(operation["value"])
				}
			}
		}
		if more {
			to.Annotations = nil
		}
		if more || to.Annotations != nil {
			list = append(list, to)
		}
	}
	return list
}

// annotate adds annotations that the patch sets.
func (p *Patch) annotate(set map[string]string) {
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	maps.Copy(p.Annotations, set)
}

// whole returns a number of a patch; 0 if it is none.
func whole(value any) int64 {
	n, _ := value.(float64)
	return int64(n)
}
