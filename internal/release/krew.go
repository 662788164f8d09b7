package main

import (
	"fmt"
	"io"

	"sigs.k8s.io/yaml"
)

// krewPlugin is the manifest of a plugin, as far as this one needs it.
type krewPlugin struct {
	APIVersion string       `json:"apiVersion"`
	Kind       string       `json:"kind"`
	Metadata   krewMetadata `json:"metadata"`
	Spec       krewSpec     `json:"spec"`
}

type krewMetadata struct {
	Name string `json:"name"`
}

type krewSpec struct {
	Version          string         `json:"version"`
	Homepage         string         `json:"homepage"`
	ShortDescription string         `json:"shortDescription"`
	Description      string         `json:"description"`
	Platforms        []krewPlatform `json:"platforms"`
}

type krewPlatform struct {
	Selector krewSelector `json:"selector"`
	URI      string       `json:"uri"`
	SHA256   string       `json:"sha256"`
	// Bin is the file that krew puts on the PATH, under the name of the plugin.
	Bin   string     `json:"bin"`
	Files []krewFile `json:"files"`
}

type krewSelector struct {
	MatchLabels map[string]string `json:"matchLabels"`
}

// krewFile says what is installed from the archive.
type krewFile struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// writeKrew writes the manifest with which krew installs gatehouse as a plugin of kubectl.
func (r *release) writeKrew() error {
	plugin := &krewPlugin{
		APIVersion: "krew.googlecontainertools.github.com/v1alpha2",
		Kind:       "Plugin",
		Metadata:   krewMetadata{Name: "gatehouse"},
		Spec: krewSpec{
			Version:          r.version(),
			Homepage:         "https://" + r.programs[0].info.Main.Path,
			ShortDescription: "Predict and explain dynamic admission",
			Description: `Says what webhooks, policies and admission plugins would do with a request,
before it is made, on any cluster:

  kubectl gatehouse explain -f pod.yaml

It also runs an API server for tests, and shows what admission did there.`,
		},
	}
	for _, b := range r.programs {
		name := archiveName(b)
		archive, err := r.written(name)
		if err != nil {
			return err
		}
		plugin.Spec.Platforms = append(plugin.Spec.Platforms, krewPlatform{
			URI: r.link(name), SHA256: archive.sha256, Bin: "gatehouse",
			Selector: krewSelector{MatchLabels: map[string]string{"os": b.OS, "arch": b.Arch}},
			Files:    []krewFile{{From: "gatehouse", To: "."}, {From: "LICENSE", To: "."}},
		})
	}
	text, err := yaml.Marshal(plugin)
	if err != nil {
		return err
	}
	_, err = r.create(fmt.Sprintf("gatehouse_%s_krew.yaml", r.version()), func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
	return err
}
