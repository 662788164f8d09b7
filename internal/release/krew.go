package main

import (
	"fmt"

	"sigs.k8s.io/yaml"
)

// writeKrew writes the manifest with which krew installs gatehouse as a plugin of kubectl.
func (r *release) writeKrew() error {
	var platforms []map[string]any
	for _, b := range r.programs {
		name := archiveName(b)
		archive, err := r.written(name)
		if err != nil {
			return err
		}
		platforms = append(platforms, map[string]any{
			"uri": r.link(name), "sha256": archive.sha256,
			// bin is the file that krew puts on the PATH, under the name of the plugin.
			"bin":      "gatehouse",
			"selector": map[string]any{"matchLabels": map[string]string{"os": b.OS, "arch": b.Arch}},
			// files lists the installed files of the archive.
			"files": []map[string]string{{"from": "gatehouse", "to": "."}, {"from": "LICENSE", "to": "."}},
		})
	}
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
		"kind":       "Plugin",
		"metadata":   map[string]string{"name": "gatehouse"},
		"spec": map[string]any{
			"version":          r.version(),
			"homepage":         "https://" + r.programs[0].info.Main.Path,
			"shortDescription": "Predict and explain dynamic admission",
			"description": `Predicts the effect of webhooks, policies and admission plugins on a request,
on any cluster:

  kubectl gatehouse explain -f pod.yaml

It also runs an API server for tests, and traces its admission.`,
			"platforms": platforms,
		},
	})
	if err != nil {
		return err
	}
	_, err = r.create(fmt.Sprintf("gatehouse_%s_krew.yaml", r.version()), plain(text))
	return err
}
