package backup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/server/storage/datadir"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/etcd"
)

// nameTime is the form of the time in the names of backups, which therefore sort by time.
const nameTime = "20060102T150405.000Z"

// name matches the names of backups in a directory, and partSuffix is the suffix of a backup that
// is being written.
var name = regexp.MustCompile(`^gatehouse-\d{8}T\d{6}\.\d{3}Z\.tar$`)

const partSuffix = ".part"

// NewPath returns a path in a directory for a backup made now.
func NewPath(dir string) string {
	return filepath.Join(dir, "gatehouse-"+time.Now().UTC().Format(nameTime)+".tar")
}

// Saved is a backup that Save has written.
type Saved struct {
	*Manifest
	File string
	Size int64
}

// Save writes a backup to a new file. The file gets its name when all of it is on the disk. reserve
// bytes of the disk stay free. Save makes the directory if it does not exist.
func (s Source) Save(ctx context.Context, file string, reserve int64) (*Saved, error) {
	if info, err := os.Stat(file); err == nil {
		switch {
		case info.IsDir():
			return nil, fmt.Errorf("%s is a directory: name a file in it", file)
		case !info.Mode().IsRegular():
			return nil, fmt.Errorf("%s is not a regular file: name another, or - for standard output", file)
		}
		return nil, fmt.Errorf("%s exists: name another file, or remove it", file)
	}
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	part := file + partSuffix
	f, err := openPart(part)
	if err != nil {
		return nil, err
	}
	saved := false
	defer func() {
		if !saved {
			os.Remove(part)
		}
		f.Close()
	}()
	m, err := s.Write(ctx, f, func(size int64) error { return room(dir, size, reserve) })
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if err := errors.Join(f.Sync(), datadir.Own(dir, part)); err != nil {
		return nil, err
	}
	if exists(file) {
		return nil, fmt.Errorf("%s exists: another process made it", file)
	}
	if err := os.Rename(part, file); err != nil {
		return nil, err
	}
	saved = true
	return &Saved{Manifest: m, File: file, Size: info.Size()}, datadir.Sync(dir)
}

// openPart opens the file of a backup that is being written, and locks it while the process
// lives.
func openPart(part string) (*os.File, error) {
	f, err := os.OpenFile(part, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		f.Close()
		return nil, errors.Join(err, fmt.Errorf("%s is not a regular file: remove it", part))
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("%s is being written by another process", part)
	}
	if err := f.Truncate(0); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// room returns an error when a disk does not have room for a backup.
func room(dir string, size, reserve int64) error {
	free, err := etcd.FreeSpace(dir)
	if err != nil || free >= uint64(size+reserve) {
		return nil
	}
	const mib = 1 << 20
	return fmt.Errorf("the disk with %s has %d MiB free, and the backup needs %d MiB of which %d MiB stay free: %w",
		dir, free/mib, (size+reserve)/mib+1, reserve/mib, syscall.ENOSPC)
}

// Entry is a backup in a directory.
type Entry struct {
	File string `json:"file"`
	Size int64  `json:"size"`
	// Manifest is nil when the file cannot be read, and Error is the reason.
	Manifest *Manifest `json:"backup,omitempty"`
	Error    string    `json:"error,omitempty"`
}

// List lists the backups in a directory, the latest first. A directory that does not exist has
// none.
func List(dir string) ([]Entry, error) {
	found, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	list := []Entry{}
	for _, e := range slices.Backward(found) {
		if !name.MatchString(e.Name()) {
			continue
		}
		entry := Entry{File: filepath.Join(dir, e.Name())}
		if info, err := e.Info(); err == nil {
			entry.Size = info.Size()
		}
		if entry.Manifest, err = ReadManifest(entry.File); err != nil {
			entry.Error = err.Error()
		}
		list = append(list, entry)
	}
	return list, nil
}

// Prune removes all backups in a directory except the latest ones, and the partial backups of
// killed processes. It leaves files that it cannot read, and does not count them.
func Prune(dir string, keep int) (removed []string, err error) {
	list, err := List(dir)
	if err != nil {
		return nil, err
	}
	readable := slices.DeleteFunc(list, func(e Entry) bool { return e.Manifest == nil })
	for _, e := range readable[min(keep, len(readable)):] {
		if err := os.Remove(e.File); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return removed, err
		}
		removed = append(removed, e.File)
	}
	left, err := filepath.Glob(filepath.Join(dir, "gatehouse-*.tar"+partSuffix))
	if err != nil {
		return removed, err
	}
	for _, part := range left {
		if f, err := openPart(part); err == nil {
			os.Remove(part)
			f.Close()
		}
	}
	return removed, nil
}
