package backup

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/datadir"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/etcd"
)

// The files of a backup.
const (
	manifestName   = "backup.json"
	databaseName   = "etcd.db"
	keysName       = "pki"
	encryptionName = "encryption"
	checksumsName  = "SHA256SUMS"
)

const (
	apiVersion = "gatehouse.dev/v1alpha1"
	kind       = "Backup"
)

// maxFile bounds a file of a backup other than the database, in bytes, and maxKeys the number
// of files with keys.
const maxFile, maxKeys = 1 << 20, 100

// Manifest describes a backup. Fields are only ever added.
type Manifest struct {
	metav1.TypeMeta `json:",inline"`
	// Created is when the backup was begun.
	Created metav1.Time `json:"created"`
	// Format is the format of the data directory.
	Format int `json:"format"`
	// Version is the version of the program that made the backup, and EtcdVersion the version of
	// etcd's data.
	Version     string `json:"version"`
	EtcdVersion string `json:"etcdVersion,omitempty"`
	// Revision is the revision of etcd when the backup was begun, and Keys how many keys etcd
	// had.
	Revision int64 `json:"revision"`
	Keys     int64 `json:"keys"`
}

// Source has the inputs of a backup: etcd and the data directory.
type Source struct {
	Client *clientv3.Client
	// DataDir is the data directory of the server.
	DataDir string
	// Version is the version of the program.
	Version string
	// WithEncryptionKey includes the keys with which Secrets are encrypted in the backup, if they
	// are in the data directory.
	WithEncryptionKey bool
}

// Write writes a backup. It reads the state of etcd at one moment, and does not block etcd. begin
// may be nil; otherwise it is called with the size of the database before anything is written.
func (s Source) Write(ctx context.Context, to io.Writer, begin func(size int64) error) (*Manifest, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	now, err := s.Client.Get(ctx, "", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return nil, fmt.Errorf("reading etcd: %w", err)
	}
	snapshot, err := etcd.TakeSnapshot(ctx, s.Client)
	if err != nil {
		return nil, fmt.Errorf("reading etcd: %w", err)
	}
	format, err := datadir.Has(s.DataDir)
	if err != nil {
		return nil, err
	}
	m := &Manifest{
		TypeMeta: metav1.TypeMeta{APIVersion: apiVersion, Kind: kind},
		Created:  metav1.NewTime(time.Now().UTC().Truncate(time.Second)),
		Format:   format, Version: s.Version, EtcdVersion: snapshot.Version, Revision: now.Header.Revision, Keys: now.Count,
	}
	if begin != nil {
		if err := begin(snapshot.Size); err != nil {
			return nil, err
		}
	}
	a := &writer{tar: tar.NewWriter(to), created: m.Created.Time, sums: map[string]hash.Hash{}}
	manifest, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, err
	}
	if err := a.add(manifestName, append(manifest, '\n')); err != nil {
		return nil, err
	}
	if err := a.copy(databaseName, snapshot.Size, snapshot); err != nil {
		return nil, err
	}
	directories := []string{keysName}
	if s.WithEncryptionKey {
		directories = append(directories, encryptionName)
	}
	for _, name := range directories {
		if err := a.addKeys(s.DataDir, name); err != nil {
			return nil, err
		}
	}
	var sums bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(a.sums)) {
		fmt.Fprintf(&sums, "%x  %s\n", a.sums[name].Sum(nil), name)
	}
	if err := a.add(checksumsName, sums.Bytes()); err != nil {
		return nil, err
	}
	return m, a.tar.Close()
}

// writer writes an archive.
type writer struct {
	tar     *tar.Writer
	created time.Time
	sums    map[string]hash.Hash
}

func (w *writer) add(name string, content []byte) error {
	return w.copy(name, int64(len(content)), bytes.NewReader(content))
}

func (w *writer) copy(name string, size int64, from io.Reader) error {
	if err := w.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o600, ModTime: w.created}); err != nil {
		return err
	}
	sum := sha256.New()
	w.sums[name] = sum
	n, err := io.Copy(io.MultiWriter(w.tar, sum), from)
	if err == nil && n != size {
		err = fmt.Errorf("reading %s: %w", name, io.ErrUnexpectedEOF)
	}
	return err
}

// addKeys adds the files of a directory with certificates and keys, below a data directory.
func (w *writer) addKeys(dataDir, name string) error {
	dir := filepath.Join(dataDir, name)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		// A file whose name begins with a dot is being written.
		if !e.Type().IsRegular() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		content, err := files.Read(filepath.Join(dir, e.Name()), maxFile)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := w.add(path.Join(name, e.Name()), content); err != nil {
			return err
		}
	}
	return nil
}

// ReadManifest reads the manifest of a backup. It does not check the rest of the file.
func ReadManifest(file string) (*Manifest, error) {
	f, err := open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	m, err := (&reader{tar: tar.NewReader(f)}).manifest()
	if err != nil {
		return nil, fmt.Errorf("%s %w", file, err)
	}
	return m, nil
}

// open opens a regular file.
func open(file string) (*os.File, error) {
	// A database may have any size.
	if err := files.Check(file, 1<<62); err != nil {
		return nil, err
	}
	return os.Open(file)
}

// extract writes the database and the keys of a backup to a directory, and checks that the
// backup is complete and undamaged. The error is a Bad if it is not.
func extract(from io.Reader, dir string) (*Manifest, error) {
	r := &reader{tar: tar.NewReader(from), sums: map[string]string{}}
	m, err := r.manifest()
	if err != nil {
		return nil, err
	}
	for _, keys := range []string{keysName, encryptionName} {
		if err := os.Mkdir(filepath.Join(dir, keys), 0o700); err != nil {
			return nil, unpacking(err)
		}
	}
	for {
		header, err := r.next()
		if err != nil {
			return nil, err
		}
		switch name := header.Name; {
		case name == checksumsName:
			if err := r.check(header); err != nil {
				return nil, err
			}
			return m, nil
		case name == databaseName && r.sums[name] == "":
			err = r.save(header, filepath.Join(dir, databaseName))
		case (path.Dir(name) == keysName || path.Dir(name) == encryptionName) && name == path.Clean(name) && r.sums[name] == "" && header.Size <= maxFile && len(r.sums) < maxKeys:
			err = r.save(header, filepath.Join(dir, filepath.FromSlash(name)))
		default:
			return nil, damaged(fmt.Errorf("it has %q, which no backup has", name))
		}
		if err != nil {
			return nil, err
		}
	}
}

// reader reads an archive.
type reader struct {
	tar  *tar.Reader
	sums map[string]string
}

// Bad is the error about a file that is not a valid backup. Its text continues a sentence that
// begins with the name of the file.
type Bad struct{ cause error }

func (b Bad) Error() string { return b.cause.Error() }
func (b Bad) Unwrap() error { return b.cause }

// damaged returns the error about a file that begins as a backup and is damaged or cut off.
func damaged(cause error) error {
	if errors.Is(cause, io.ErrUnexpectedEOF) || errors.Is(cause, io.EOF) {
		return Bad{errors.New("is cut off: the end of the backup is missing")}
	}
	return Bad{fmt.Errorf("is damaged: %w", cause)}
}

// unpacking returns the error about the directory to which a backup is unpacked.
func unpacking(cause error) error { return fmt.Errorf("unpacking the backup: %w", cause) }

func (r *reader) next() (*tar.Header, error) {
	header, err := r.tar.Next()
	if err != nil {
		return nil, damaged(err)
	}
	if header.Typeflag != tar.TypeReg {
		return nil, damaged(fmt.Errorf("%q in it is not a file", header.Name))
	}
	return header, nil
}

// manifest reads the first file.
func (r *reader) manifest() (*Manifest, error) {
	header, err := r.tar.Next()
	if err != nil || header.Name != manifestName || header.Typeflag != tar.TypeReg || header.Size > maxFile {
		return nil, Bad{errors.New("is not a backup of 'gatehouse backup save': a snapshot of etcdctl is restored with etcdutl")}
	}
	text, err := io.ReadAll(r.tar)
	if err != nil {
		return nil, damaged(err)
	}
	m := &Manifest{}
	if err := json.Unmarshal(text, m); err != nil {
		return nil, damaged(fmt.Errorf("%s: %w", manifestName, err))
	}
	if m.Kind != kind {
		return nil, damaged(fmt.Errorf("%s has kind %q and not %s", manifestName, m.Kind, kind))
	}
	if m.Format > datadir.Format || m.APIVersion != apiVersion {
		return nil, Bad{fmt.Errorf("was made by version %s, whose data (format %d, %s) this version does not know: use that version", m.Version, m.Format, m.APIVersion)}
	}
	if r.sums != nil {
		sum := sha256.Sum256(text)
		r.sums[manifestName] = hex.EncodeToString(sum[:])
	}
	return m, nil
}

// save writes the current file of the archive to a path.
func (r *reader) save(header *tar.Header, to string) error {
	f, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return unpacking(err)
	}
	defer f.Close()
	sum := sha256.New()
	out := &target{f: f}
	if _, err = io.Copy(io.MultiWriter(out, sum), r.tar); out.err != nil {
		return unpacking(out.err)
	} else if err != nil {
		return damaged(err)
	}
	if strings.HasSuffix(header.Name, ".crt") {
		if err := f.Chmod(0o644); err != nil {
			return unpacking(err)
		}
	}
	r.sums[header.Name] = hex.EncodeToString(sum.Sum(nil))
	if err := f.Close(); err != nil {
		return unpacking(err)
	}
	return nil
}

// target keeps write errors apart from read errors.
type target struct {
	f   *os.File
	err error
}

func (t *target) Write(p []byte) (n int, err error) {
	n, t.err = t.f.Write(p)
	return n, t.err
}

// check compares the checksums in the backup with the checksums of the files that were read.
func (r *reader) check(header *tar.Header) error {
	if header.Size > maxFile {
		return damaged(fmt.Errorf("%s has %d bytes", checksumsName, header.Size))
	}
	text, err := io.ReadAll(r.tar)
	if err != nil {
		return damaged(err)
	}
	want := map[string]string{}
	for line := range strings.Lines(string(text)) {
		sum, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		if !ok {
			return damaged(fmt.Errorf("%s has the line %q", checksumsName, line))
		}
		want[name] = sum
	}
	for _, name := range slices.Sorted(maps.Keys(r.sums)) {
		if want[name] != r.sums[name] {
			return damaged(fmt.Errorf("%s does not have its checksum", name))
		}
		delete(want, name)
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		return damaged(fmt.Errorf("%s is missing", name))
	}
	if r.sums[databaseName] == "" {
		return damaged(fmt.Errorf("%s is missing", databaseName))
	}
	return nil
}
