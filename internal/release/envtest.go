package main

import (
	"fmt"
	"io"

	"sigs.k8s.io/yaml"
)

// indexName is the name of the index of setup-envtest.
const indexName = "envtest-releases.yaml"

// envtestPrograms are the program names that test libraries start. The first is a real binary. setup-envtest
// drops links, and copies would not share their memory, so the others are scripts.
var envtestPrograms = []string{"kube-apiserver", "etcd", "kubectl"}

// script starts the first of the programs under another name.
const script = `#!/bin/sh
GATEHOUSE_PROGRAM=%s
export GATEHOUSE_PROGRAM
exec "${0%%/*}/%s" "$@"
`

// emulated are the newest known patches of the releases that the program can emulate. setup-envtest unpacks an
// archive into a folder that is named after the release, and programs in such a folder emulate that release, so
// that these releases need no archives of their own.
var emulated = []string{"v1.34.4", "v1.35.4", "v1.36.3"}

// writeEnvtest writes an archive for setup-envtest for each platform, and the index.
func (r *release) writeEnvtest() error {
	// The index has archives by the Kubernetes release and by their name.
	index := map[string]map[string]any{}
	for _, b := range r.programs {
		first := envtestPrograms[0]
		entries := []entry{{name: first, mode: 0o755, path: b.path}}
		for _, other := range envtestPrograms[1:] {
			entries = append(entries, entry{name: other, mode: 0o755, content: fmt.Appendf(nil, script, other, first)})
		}
		name := envtestName(b.kubernetes, b)
		written, err := r.create(name, func(w io.Writer) error { return writeTarGz(w, b.made, entries) })
		if err != nil {
			return err
		}
		for _, release := range append([]string{b.kubernetes}, emulated...) {
			if index[release] == nil {
				index[release] = map[string]any{}
			}
			index[release][envtestName(release, b)] = map[string]string{"hash": written.sha512, "selfLink": r.link(name)}
		}
	}
	text, err := yaml.Marshal(map[string]any{"releases": index})
	if err != nil {
		return err
	}
	_, err = r.create(indexName, plain(text))
	return err
}

// envtestName is the file name from which setup-envtest parses the release and the platform.
func envtestName(release string, b *program) string {
	return fmt.Sprintf("envtest-%s-%s-%s.tar.gz", release, b.OS, b.Arch)
}
