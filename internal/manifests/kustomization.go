package manifests

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/internal/aliases"
	"github.com/gatehouse-dev/gatehouse/internal/files"
)

// isKustomization reports whether a file configures kustomize.
func isKustomization(path string) bool {
	return slices.Contains([]string{"kustomization.yaml", "kustomization.yml", "Kustomization"}, filepath.Base(path))
}

// kustomization notes a kustomization, and its patches, which are parts of objects.
func (r *reader) kustomization(path string) {
	dir := filepath.Dir(path)
	r.set.Notes = append(r.set.Notes, Note{File: path,
		Message: fmt.Sprintf("a kustomization is not built: check what it makes with 'kubectl kustomize %s | gatehouse check -'", dir)})
	data, err := files.Read(path, files.Configuration)
	if err != nil {
		r.set.Problems = append(r.set.Problems, Problem{File: path, Message: cause(err).Error()})
		return
	}
	var content struct {
		Patches               []struct{ Path string }
		PatchesJSON6902       []struct{ Path string } `json:"patchesJson6902"`
		PatchesStrategicMerge []string                `json:"patchesStrategicMerge"`
	}
	if err = aliases.Check(data, files.Configuration); err == nil {
		err = yaml.Unmarshal(data, &content)
	}
	if err != nil {
		r.set.Problems = append(r.set.Problems, Problem{File: path, Line: max(1, lineOf(err)), Message: strings.TrimPrefix(err.Error(), "error converting YAML to JSON: ")})
		return
	}
	patch := func(name string) {
		if name != "" && !strings.Contains(name, "\n") {
			r.patches[filepath.Join(dir, filepath.FromSlash(name))] = path
		}
	}
	for _, p := range slices.Concat(content.Patches, content.PatchesJSON6902) {
		patch(p.Path)
	}
	for _, p := range content.PatchesStrategicMerge {
		patch(p)
	}
}
