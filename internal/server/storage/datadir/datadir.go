package datadir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
	"github.com/gatehouse-dev/gatehouse/internal/server/handling/keys"
)

// The formats of a data directory's layout, and of the data in it. A directory has the lower
// format until values in its etcd are encrypted: releases before that cannot read them.
const (
	plain = 1
	// Format is the highest format that this version reads: values may be encrypted.
	Format = 2
	// Shared is the format of the data in an etcd that servers share.
	Shared = plain
)

// formatName is the name of the file that has the format.
const formatName = "FORMAT"

// content is the content of the file for a format.
func content(format int) string { return fmt.Sprintf("gatehouse data directory, format %d", format) }

// Prepare makes the data directory if there is none, and checks that this version can read it.
// An error names --data-dir.
func Prepare(to keys.Files, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	if info, err := os.Stat(dir); err == nil && info.Mode().Perm()&0o002 != 0 {
		// The administrator may have given a volume this mode on purpose, so the server only warns.
		klog.Warningf("All users of this machine may write to the data directory %s (mode %#o), and replace the server's keys and data: close it with chmod 700", dir, info.Mode().Perm())
	}
	_, err := Has(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return Mark(to, dir, plain)
	}
	return err
}

// Has returns the format of a data directory. It refuses a directory that this version cannot read.
// The error wraps fs.ErrNotExist when the directory has no file FORMAT.
func Has(dir string) (int, error) {
	found, err := read(dir)
	if err != nil {
		return 0, fmt.Errorf("--data-dir: %w", err)
	}
	for _, format := range []int{plain, Format} {
		if found == content(format) {
			return format, nil
		}
	}
	return 0, fmt.Errorf("--data-dir %s was written by another version (%q, this one needs %q); use that version, or another directory", dir, found, content(Format))
}

// Encrypted reports whether values may be encrypted in data of a format.
func Encrypted(format int) bool { return format > plain }

// MarkEncrypted records in a data directory that values may be encrypted, before any value is.
func MarkEncrypted(to keys.Files, dir string) error {
	if format, err := Has(dir); err != nil || Encrypted(format) {
		return err
	}
	return Mark(to, dir, Format)
}

// read returns the content of the file FORMAT of a data directory.
func read(dir string) (string, error) {
	data, err := files.Read(filepath.Join(dir, formatName), files.Configuration)
	return strings.TrimSpace(string(data)), err
}

// Mark records the format of a data directory in it.
func Mark(to keys.Files, dir string, format int) error {
	return to.Write(filepath.Join(dir, formatName), []byte(content(format)+"\n"), 0o644)
}

// sharedFormat is the value of the key in an etcd that servers share.
var sharedFormat = fmt.Sprintf("gatehouse data, format %d", Shared)

// Agree checks that this version can read the data in an etcd that servers share, and marks an etcd
// without a mark. It changes nothing in an etcd that has data of another format.
func Agree(ctx context.Context, shared clientv3.KV, key string) error {
	// A full etcd refuses even a transaction that would not write.
	found, err := shared.Get(ctx, key)
	if err != nil {
		return fmt.Errorf("reading from etcd in which format its data are: %w", err)
	}
	kvs := found.Kvs
	if len(kvs) == 0 {
		marked, err := shared.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
			Then(clientv3.OpPut(key, sharedFormat)).
			Else(clientv3.OpGet(key)).
			Commit()
		if err != nil {
			return fmt.Errorf("writing to etcd in which format its data are: %w", err)
		}
		if marked.Succeeded {
			return nil
		}
		kvs = marked.Responses[0].GetResponseRange().Kvs
	}
	for _, kv := range kvs {
		if has := string(kv.Value); has != sharedFormat {
			return fmt.Errorf("the data of the servers' etcd were written by another version (%s has %q, this one needs %q); use that version, or another --etcd-prefix", key, has, sharedFormat)
		}
	}
	return nil
}

// restoring is the text in the file between the format and the directory for the replaced data,
// while restored data are moved into place. No version of the server serves a directory with
// this text.
const restoring = ", being restored: 'gatehouse backup restore' or the next start completes it; the replaced data go to "

// MarkRestoring records in a data directory that restored data of a format are being moved into
// place, and the directory of the replaced data. No server serves the directory until Mark is
// called.
func MarkRestoring(to keys.Files, dir string, format int, replaced string) error {
	return to.Write(filepath.Join(dir, formatName), []byte(content(format)+restoring+replaced+"\n"), 0o644)
}

// Restoring returns the directory of the replaced data while restored data are being moved into
// place, and the format of the restored data. The directory is empty when no restore is in
// progress.
func Restoring(dir string) (replaced string, format int, err error) {
	found, err := read(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", 0, err
	}
	before, replaced, _ := strings.Cut(found, restoring)
	if format = plain; before == content(Format) {
		format = Format
	}
	return replaced, format, nil
}

// Sync waits until a file or a directory is on the disk.
func Sync(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// Own gives files to the user that owns a directory. An administrator may restore, as root, the
// data of a server that runs as another user.
func Own(like string, paths ...string) error {
	info, err := os.Stat(like)
	if err != nil {
		return err
	}
	owner := info.Sys().(*syscall.Stat_t)
	if os.Geteuid() != 0 || owner.Uid == 0 && owner.Gid == 0 {
		return nil
	}
	for _, path := range paths {
		if _, err := os.Lstat(path); err != nil {
			continue
		}
		if err := filepath.WalkDir(path, func(path string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return os.Lchown(path, int(owner.Uid), int(owner.Gid))
		}); err != nil {
			return err
		}
	}
	return nil
}
