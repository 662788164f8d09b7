package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// The user that the server runs as in a container, and its directory.
const (
	imageUser = 65532
	imageData = "var/lib/gatehouse"
)

// writeImages writes a container image of each program.
func (r *release) writeImages() error {
	for _, programs := range [][]*program{r.programs, r.agents} {
		if err := r.writeImage(programs); err != nil {
			return err
		}
	}
	return nil
}

// writeImage writes a container image for all Linux platforms, as an archive of an OCI layout. The image has
// only the program and the files that it reads: root certificates for webhooks with public certificates, and
// time zones for expressions.
func (r *release) writeImage(programs []*program) error {
	programs = slices.DeleteFunc(slices.Clone(programs), func(b *program) bool { return b.OS != "linux" })
	if len(programs) == 0 {
		return nil
	}
	base, err := baseFiles(programs[0].name)
	if err != nil {
		return err
	}
	images := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, b := range programs {
		image, err := r.image(b, base)
		if err != nil {
			return fmt.Errorf("image for %s: %w", b.platform, err)
		}
		images = mutate.AppendManifests(images, mutate.IndexAddendum{
			Add:        image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: b.OS, Architecture: b.Arch}},
		})
	}
	dir, err := os.MkdirTemp("", "gatehouse-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	if err := path.AppendIndex(images, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": r.version()})); err != nil {
		return err
	}
	var entries []entry
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		entries = append(entries, entry{name: filepath.ToSlash(name), mode: 0o644, path: path})
		return err
	}); err != nil {
		return err
	}
	_, err = r.create(fmt.Sprintf("%s_%s_image.tar", programs[0].name, r.version()), func(w io.Writer) error {
		return writeTar(w, r.programs[0].made, entries)
	})
	return err
}

// baseFiles returns the files of a program's image that are equal on all platforms.
func baseFiles(name string) ([]entry, error) {
	var authorities bytes.Buffer
	for root := range bundle.Roots() {
		// The file format cannot express a root for certain names only.
		if root.Constraint != nil {
			continue
		}
		if err := pem.Encode(&authorities, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, err
		}
	}
	// Go's own copy of the time zones.
	out, err := exec.CommandContext(context.Background(), "go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env GOROOT: %w", err)
	}
	zones := filepath.Join(strings.TrimSpace(string(out)), "lib", "time", "zoneinfo.zip")
	entries, home := []entry{{name: "tmp/", mode: 0o1777}}, ""
	if name == gatehouse {
		home = imageData
		entries = append(entries, entry{name: imageData + "/", mode: 0o700, uid: imageUser})
	}
	return append(entries, []entry{
		{name: "etc/passwd", mode: 0o644, content: fmt.Appendf(nil, "root:x:0:0::/:/sbin/nologin\ngatehouse:x:%d:%[1]d::/%s:/sbin/nologin\n", imageUser, home)},
		{name: "etc/group", mode: 0o644, content: fmt.Appendf(nil, "root:x:0:\ngatehouse:x:%d:\n", imageUser)},
		{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, content: authorities.Bytes()},
		{name: "usr/share/zoneinfo.zip", mode: 0o644, path: zones},
	}...), nil
}

// image builds the image of one platform.
func (r *release) image(b *program, base []entry) (v1.Image, error) {
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	program := []entry{
		{name: "usr/share/licenses/" + b.name + "/LICENSE", mode: 0o644, content: r.license},
		{name: "usr/local/bin/" + b.name, mode: 0o755, path: b.path},
	}
	for _, entries := range [][]entry{base, program} {
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
			read, write := io.Pipe()
			go func() { write.CloseWithError(writeTar(write, b.made, entries)) }()
			return read, nil
		}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.DefaultCompression))
		if err != nil {
			return nil, err
		}
		image, err = mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{
			Created: v1.Time{Time: b.made}, CreatedBy: "release",
		}})
		if err != nil {
			return nil, err
		}
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Created = b.OS, b.Arch, v1.Time{Time: b.made}
	file.Config = b.config()
	file.Config.Labels = map[string]string{
		"org.opencontainers.image.title":    b.name,
		"org.opencontainers.image.version":  b.version,
		"org.opencontainers.image.revision": b.commit,
		"org.opencontainers.image.created":  b.made.Format(time.RFC3339),
		"org.opencontainers.image.source":   "https://" + b.info.Main.Path,
		"org.opencontainers.image.licenses": "Apache-2.0",
	}
	return mutate.ConfigFile(image, file)
}

// config returns the configuration of a container. The agent has no data.
func (b *program) config() v1.Config {
	c := v1.Config{
		User:         fmt.Sprintf("%d:%[1]d", imageUser),
		Entrypoint:   []string{"/usr/local/bin/" + b.name},
		WorkingDir:   "/",
		Env:          []string{"PATH=/usr/local/bin", "ZONEINFO=/usr/share/zoneinfo.zip"},
		ExposedPorts: map[string]struct{}{"8443/tcp": {}},
	}
	if b.name == gatehouse {
		c.Cmd, c.WorkingDir = []string{"serve", "--bind-address=0.0.0.0"}, "/"+imageData
		c.Env = append(c.Env, "HOME=/"+imageData, "GATEHOUSE_DATA_DIR=/"+imageData)
		c.ExposedPorts, c.Volumes = map[string]struct{}{"6443/tcp": {}}, map[string]struct{}{"/" + imageData: {}}
	}
	return c
}
