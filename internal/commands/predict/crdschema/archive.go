package crdschema

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/internal/kit/aliases"
	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
)

// The limits of an archive: its entries, and the size of its manifests, in bytes.
const (
	maxEntries  = 20_000
	maxUnpacked = 256 << 20
)

// archived returns the reader of the archives with the name of a file; nil for other files.
func archived(name string) func(string) ([]*unstructured.Unstructured, error) {
	switch {
	case strings.HasSuffix(name, ".zip"):
		return zipped
	case strings.HasSuffix(name, ".tar"), strings.HasSuffix(name, ".tar.gz"), strings.HasSuffix(name, ".tgz"):
		return tarred
	}
	return nil
}

// unpacking gathers the objects of an archive, within its limits.
type unpacking struct {
	objects       []*unstructured.Unstructured
	entries, size int64
}

var errTooLarge = fmt.Errorf("an archive has at most %d files, with %d MiB of manifests", maxEntries, maxUnpacked>>20)

// entry reads one file of an archive. Files other than manifests are skipped.
func (u *unpacking) entry(name string, open func() (io.Reader, error)) error {
	if u.entries++; u.entries > maxEntries {
		return errTooLarge
	}
	if !slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(name)) {
		return nil
	}
	in, err := open()
	if err != nil {
		return err
	}
	data, err := io.ReadAll(io.LimitReader(in, maxUnpacked-u.size+1))
	if err != nil {
		return err
	}
	if u.size += int64(len(data)); u.size > maxUnpacked {
		return errTooLarge
	}
	for _, o := range manifests.Parse(name, data).Objects {
		u.objects = append(u.objects, o.Unstructured())
	}
	return nil
}

// tarred reads a tar archive, which may be compressed by gzip.
func tarred(name string) ([]*unstructured.Unstructured, error) {
	f, err := files.Open(name)
	if err != nil {
		return nil, files.Plain(err)
	}
	defer f.Close()
	in := io.Reader(f)
	if !strings.HasSuffix(name, ".tar") {
		unpacked, err := gzip.NewReader(f)
		if err != nil {
			return nil, err
		}
		// Skipped files are unpacked, too.
		in = io.LimitReader(unpacked, 4*maxUnpacked)
	}
	u, archive := &unpacking{}, tar.NewReader(in)
	for {
		header, err := archive.Next()
		switch {
		case errors.Is(err, io.EOF):
			return u.objects, nil
		case err != nil:
			return nil, err
		case header.Typeflag != tar.TypeReg:
			continue
		}
		if err := u.entry(header.Name, func() (io.Reader, error) { return archive, nil }); err != nil {
			return nil, err
		}
	}
}

// zipped reads a zip archive.
func zipped(name string) ([]*unstructured.Unstructured, error) {
	opened, err := files.Open(name)
	if err != nil {
		return nil, files.Plain(err)
	}
	defer opened.Close()
	info, err := opened.Stat()
	if err != nil {
		return nil, err
	}
	archive, err := zip.NewReader(opened, info.Size())
	if err != nil {
		return nil, err
	}
	u := &unpacking{}
	for _, f := range archive.File {
		if !f.Mode().IsRegular() {
			continue
		}
		err := u.entry(f.Name, func() (io.Reader, error) { return f.Open() })
		if err != nil {
			return nil, err
		}
	}
	return u.objects, nil
}

// snapshotted returns the objects of a file of 'gatehouse snapshot'; none for another file.
func snapshotted(name string) (list []*unstructured.Unstructured) {
	data, err := files.ReadArgument(name, files.Objects)
	if err == nil {
		err = aliases.Check(data, files.Objects)
	}
	if err == nil {
		data, err = yaml.YAMLToJSON(data)
	}
	var snapshot struct {
		Kind  string           `json:"kind"`
		Items []map[string]any `json:"items"`
	}
	if err != nil || json.Unmarshal(data, &snapshot) != nil || snapshot.Kind != "ClusterSnapshot" {
		return nil
	}
	for _, item := range snapshot.Items {
		list = append(list, &unstructured.Unstructured{Object: item})
	}
	return list
}
