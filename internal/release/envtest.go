package main

import (
	"fmt"
	"io"

	"sigs.k8s.io/yaml"
)

// indexName is the name of the index of setup-envtest.
const indexName = "envtest-releases.yaml"

// index is what setup-envtest reads: archives by the Kubernetes release and by their name.
type index struct {
	Releases map[string]map[string]indexEntry `json:"releases"`
}

type indexEntry struct {
	// Hash is the SHA-512 of the archive.
	Hash     string `json:"hash"`
	SelfLink string `json:"selfLink"`
}

// envtestPrograms are the names under which test libraries start the program. The first one
// is the program itself. setup-envtest leaves out links, and with a copy for each name the
// programs would not share their memory, so the others are scripts.
var envtestPrograms = []string{"kube-apiserver", "etcd", "kubectl"}

// script starts the first of the programs under another name.
const script = `#!/bin/sh
GATEHOUSE_PROGRAM=%s
export GATEHOUSE_PROGRAM
exec "${0%%/*}/%s" "$@"
`

// emulated are the newest known patches of the releases that the program can emulate. setup-envtest
// puts an archive into a folder that is named after the release, and programs in such a folder
// emulate it, so that these releases need no archives of their own.
var emulated = []string{"v1.34.4", "v1.35.4", "v1.36.3"}

// writeEnvtest writes an archive for setup-envtest for each platform, and the index.
func (r *release) writeEnvtest() error {
	found := index{Releases: map[string]map[string]indexEntry{}}
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
			if found.Releases[release] == nil {
				found.Releases[release] = map[string]indexEntry{}
			}
			found.Releases[release][envtestName(release, b)] = indexEntry{Hash: written.sha512, SelfLink: r.link(name)}
		}
	}
	text, err := yaml.Marshal(found)
	if err != nil {
		return err
	}
	_, err = r.create(indexName, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
	return err
}

// envtestName is the name from which setup-envtest reads the release and the platform.
func envtestName(release string, b *program) string {
	return fmt.Sprintf("envtest-%s-%s-%s.tar.gz", release, b.OS, b.Arch)
}
