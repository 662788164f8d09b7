package datadir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/internal/files"
	"github.com/gatehouse-dev/gatehouse/internal/server/handling/auth"
)

// Format is the version of the data directory's layout, and of the data in it.
const Format = 1

// formatName is the name of the file that has the format.
const formatName = "FORMAT"

// format is the content of the file.
var format = fmt.Sprintf("gatehouse data directory, format %d", Format)

// Prepare makes the data directory if there is none, and checks that this version can read it.
// An error names --data-dir.
func Prepare(to auth.Files, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	if info, err := os.Stat(dir); err == nil && info.Mode().Perm()&0o002 != 0 {
		// The administrator may have given a volume this mode on purpose, so the server only warns.
		klog.Warningf("All users of this machine may write to the data directory %s (mode %#o), and replace the server's keys and data: close it with chmod 700", dir, info.Mode().Perm())
	}
	return checkFormat(to, dir)
}

// checkFormat refuses a data directory that this version cannot read, and marks a new one. It
// changes nothing in a directory of another format.
func checkFormat(to auth.Files, dir string) error {
	err := Check(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return Mark(to, dir)
	}
	return err
}

// Check refuses a data directory that this version cannot read. The error wraps fs.ErrNotExist
// when the directory has no file FORMAT.
func Check(dir string) error {
	found, err := read(dir)
	if err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	if found != format {
		return fmt.Errorf("--data-dir %s was written by another version (%q, this one needs %q); use that version, or another directory", dir, found, format)
	}
	return nil
}

// read returns the content of the file FORMAT of a data directory.
func read(dir string) (string, error) {
	data, err := files.Read(filepath.Join(dir, formatName), files.Configuration)
	return strings.TrimSpace(string(data)), err
}

// Mark writes into a data directory that it has the format of this version.
func Mark(to auth.Files, dir string) error {
	return to.Write(filepath.Join(dir, formatName), []byte(format+"\n"), 0o644)
}

// sharedFormat is the value of the key in an etcd that servers share.
var sharedFormat = fmt.Sprintf("gatehouse data, format %d", Format)

// Agree checks that this version can read what servers keep in an etcd that they share, and marks an
// etcd without a mark. It changes nothing in one that has data of another format.
func Agree(ctx context.Context, shared clientv3.KV, key string) error {
	// An etcd that is full refuses even a transaction that would not write.
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
			return fmt.Errorf("the data of --etcd-servers were written by another version (%s has %q, this one needs %q); use that version, or another --etcd-prefix", key, has, sharedFormat)
		}
	}
	return nil
}

// restoring is the text in the file between the format and the directory for the replaced data,
// while restored data are moved into place. No version of the server serves a directory with
// this text.
const restoring = ", being restored: 'gatehouse backup restore' or the next start completes it; the replaced data go to "

// MarkRestoring writes into a data directory that restored data are being moved into place, and
// to which directory the replaced data go. No server serves the directory until Mark is called.
func MarkRestoring(to auth.Files, dir, replaced string) error {
	return to.Write(filepath.Join(dir, formatName), []byte(format+restoring+replaced+"\n"), 0o644)
}

// Restoring returns the directory to which replaced data go while restored data are being moved
// into place; empty when no restore is in progress.
func Restoring(dir string) (replaced string, err error) {
	found, err := read(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	_, replaced, _ = strings.Cut(found, restoring)
	return replaced, nil
}
