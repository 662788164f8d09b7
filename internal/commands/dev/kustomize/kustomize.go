package kustomize

import (
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
)

// Build returns the objects of the kustomization in a directory, as YAML. It calls reading with the path of each file
// before it reads it.
func Build(dir string, reading func(path string)) ([]byte, error) {
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(noted{filesys.MakeFsOnDisk(), reading}, dir)
	if err != nil {
		return nil, err
	}
	return built.AsYaml()
}

// noted is the file system of this machine. It reports the files that are read, and reads only regular files.
type noted struct {
	filesys.FileSystem
	reading func(path string)
}

// ReadFile implements filesys.FileSystem.
func (n noted) ReadFile(path string) ([]byte, error) {
	n.reading(path)
	return files.Read(path, files.Objects)
}
