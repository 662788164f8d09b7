package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// file is a file of the release that was written.
type file struct {
	name           string
	size           int64
	sha256, sha512 string
}

// create writes a file of the release and keeps its checksums.
func (r *release) create(name string, write func(io.Writer) error) (file, error) {
	out, err := os.Create(filepath.Join(r.dir, name))
	if err != nil {
		return file{}, err
	}
	defer out.Close()
	short, long := sha256.New(), sha512.New()
	if err := write(io.MultiWriter(out, short, long)); err != nil {
		return file{}, fmt.Errorf("%s: %w", name, err)
	}
	size, err := out.Seek(0, io.SeekCurrent)
	if err != nil {
		return file{}, err
	}
	if err := out.Close(); err != nil {
		return file{}, err
	}
	f := file{name: name, size: size, sha256: hex.EncodeToString(short.Sum(nil)), sha512: hex.EncodeToString(long.Sum(nil))}
	r.files = append(r.files, f)
	return f, nil
}

// plain writes a text for create.
func plain(text []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	}
}

// entry is a member of an archive: a file from the disk or from memory, or a directory.
type entry struct {
	name string
	mode int64
	// path is the file on disk; if it is empty, content is the content.
	path    string
	content []byte
	// uid is the owner and the group.
	uid int
}

// writeTar writes an archive whose bytes depend only on its arguments.
func writeTar(w io.Writer, made time.Time, entries []entry) error {
	archive := tar.NewWriter(w)
	for _, e := range entries {
		if err := e.write(archive, made); err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
	}
	return archive.Close()
}

func (e *entry) write(archive *tar.Writer, made time.Time) error {
	header := &tar.Header{Typeflag: tar.TypeReg, Name: e.name, Mode: e.mode, Size: int64(len(e.content)), Uid: e.uid, Gid: e.uid, ModTime: made, Format: tar.FormatPAX}
	if strings.HasSuffix(e.name, "/") {
		header.Typeflag = tar.TypeDir
		return archive.WriteHeader(header)
	}
	var content io.Reader = bytes.NewReader(e.content)
	if e.path != "" {
		in, err := os.Open(e.path)
		if err != nil {
			return err
		}
		defer in.Close()
		info, err := in.Stat()
		if err != nil {
			return err
		}
		content, header.Size = in, info.Size()
	}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	_, err := io.Copy(archive, content)
	return err
}

// writeTarGz is writeTar, compressed.
func writeTarGz(w io.Writer, made time.Time, entries []entry) error {
	compressed := gzip.NewWriter(w)
	if err := writeTar(compressed, made, entries); err != nil {
		return err
	}
	return compressed.Close()
}

// archiveName is the name of the archive with a program.
func archiveName(b *program) string {
	return fmt.Sprintf("%s_%s_%s_%s.tar.gz", b.name, b.version, b.OS, b.Arch)
}

// writeArchives writes an archive with each program for each platform.
func (r *release) writeArchives() error {
	for _, b := range r.allPrograms() {
		_, err := r.create(archiveName(b), func(w io.Writer) error {
			return writeTarGz(w, b.made, []entry{
				{name: "LICENSE", mode: 0o644, content: r.license},
				{name: b.name, mode: 0o755, path: b.path},
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// written returns a file of the release by its name.
func (r *release) written(name string) (file, error) {
	i := slices.IndexFunc(r.files, func(f file) bool { return f.name == name })
	if i < 0 {
		return file{}, fmt.Errorf("%s is not written yet", name)
	}
	return r.files[i], nil
}

// writeChecksums writes the checksums of all other files, for sha256sum -c.
func (r *release) writeChecksums() error {
	var lines []byte
	for _, f := range r.files {
		lines = fmt.Appendf(lines, "%s  %s\n", f.sha256, f.name)
	}
	_, err := r.create(fmt.Sprintf("gatehouse_%s_checksums.txt", r.version()), plain(lines))
	return err
}
