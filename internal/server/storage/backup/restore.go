package backup

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/gatehouse-dev/gatehouse/internal/kit/scratch"
	"github.com/gatehouse-dev/gatehouse/internal/server/handling/keys"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/datadir"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/encryption"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/etcd"
)

const (
	// staged is the directory in a data directory in which restored data are prepared.
	// replacedPrefix is the prefix of the directories with replaced data.
	staged, replacedPrefix = "restored", "before-restore-"
	// moreRevisions is greater than the number of revisions that are in etcd's log and not in its
	// database.
	moreRevisions = 1_000_000
	// revisionsPerSecond is greater than the number of revisions of an etcd in a second of steady
	// writes.
	revisionsPerSecond = 10_000
)

// begin is earlier than all data of servers.
var begin = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)

// parts are the restored directories, as paths in a data directory.
var parts = []string{filepath.Join("etcd", "member"), keysName, encryptionName}

// Restored is the result of Restore.
type Restored struct {
	*Manifest
	// Replaced is the directory with the data that were there before, empty if there were none.
	Replaced string
	// Needed are the keys with which the restored data are encrypted and that the data directory
	// does not have.
	Needed []encryption.Key
}

// Restore replaces the data of a data directory by the data of a backup. No server may run on the
// directory: the error wraps etcd.ErrInUse if a server does. After an error the directory has the
// data from before the call.
func Restore(dir string, from io.Reader) (*Restored, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	lock, err := etcd.TakeLock(filepath.Join(dir, "etcd"))
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	if err := finish(dir); err != nil {
		return nil, err
	}
	if err := datadir.Prepare(keys.Files{}, dir); err != nil {
		return nil, err
	}
	at := filepath.Join(dir, staged)
	// A killed restore may have left this directory.
	if err := os.RemoveAll(at); err != nil {
		return nil, err
	}
	moving := false
	defer func() {
		if !moving {
			os.RemoveAll(at)
		}
	}()
	format, err := datadir.Has(dir)
	if err != nil {
		return nil, err
	}
	m, err := stage(at, filepath.Join(dir, parts[0], "snap", "db"), from)
	if err != nil {
		return nil, err
	}
	if err := datadir.Own(dir, filepath.Join(dir, "etcd"), at); err != nil {
		return nil, err
	}
	if err := syncTree(at); err != nil {
		return nil, err
	}
	replaced := replacedPrefix + time.Now().UTC().Format(nameTime)
	moving = true
	if err := datadir.MarkRestoring(keys.Files{}, dir, max(format, m.Format), replaced); err != nil {
		return nil, err
	}
	if err := finish(dir); err != nil {
		return nil, fmt.Errorf("%w: the restore is not complete; run it again", err)
	}
	r := &Restored{Manifest: m}
	if r.Needed, err = needed(dir, filepath.Join(dir, parts[0], "snap", "db")); err != nil {
		return nil, err
	}
	if there := filepath.Join(dir, replaced); exists(there) {
		r.Replaced = there
	}
	return r, nil
}

// Verify restores a backup to a temporary directory, and removes the directory.
func Verify(from io.Reader) (*Manifest, error) {
	dir, err := scratch.New()
	if err != nil {
		return nil, err
	}
	defer dir.Remove()
	return stage(filepath.Join(dir.Path(), staged), "", from)
}

// stage prepares the data of a backup in a directory. present is the database that is to be
// replaced, which may be absent.
func stage(at, present string, from io.Reader) (*Manifest, error) {
	if err := os.Mkdir(at, 0o700); err != nil {
		return nil, err
	}
	m, err := extract(from, at)
	if err != nil {
		return nil, err
	}
	database := filepath.Join(at, databaseName)
	if err := etcd.Restore(database, filepath.Join(at, "etcd"), revision(present, time.Now())); err != nil {
		if errors.Is(err, syscall.ENOSPC) {
			return nil, unpacking(err)
		}
		return nil, damaged(err)
	}
	// A backup without keys leaves the current keys in place.
	for _, keys := range []string{keysName, encryptionName} {
		if err := os.Remove(filepath.Join(at, keys)); err != nil && !errors.Is(err, syscall.ENOTEMPTY) && !errors.Is(err, syscall.EEXIST) {
			return nil, err
		}
	}
	return m, os.Remove(database)
}

// needed lists the keys with which values in a database are encrypted and that the configuration in
// a data directory does not have.
func needed(dir, database string) ([]encryption.Key, error) {
	by := map[string]encryption.Key{}
	if err := etcd.Values(database, func(kv *mvccpb.KeyValue) {
		if key := encryption.By(kv.Value); key != (encryption.Key{}) {
			by[string(kv.Key)] = key
		} else {
			delete(by, string(kv.Key))
		}
	}); err != nil {
		return nil, damaged(err)
	}
	known, err := encryption.KeyNames(dir)
	if err != nil {
		return nil, err
	}
	var list []encryption.Key
	for _, key := range by {
		if !(key.Provider == encryption.OwnProvider && slices.Contains(known, key.Name)) && !slices.Contains(list, key) {
			list = append(list, key)
		}
	}
	slices.SortFunc(list, func(a, b encryption.Key) int { return strings.Compare(a.String(), b.String()) })
	return list, nil
}

// revision returns a function that returns the revision above which restored data begin. It is
// greater than all revisions that clients may have seen, of the replaced data and of data of
// earlier restores. The clock gives this bound when the current data cannot be read, and the
// current data when the clock is wrong.
func revision(present string, now time.Time) func(last int64) int64 {
	return func(last int64) int64 {
		// Damaged data are a reason to restore.
		if known, err := etcd.LastRevision(present); err == nil {
			last = max(last, known)
		}
		return max(last+moreRevisions, int64(now.Sub(begin)/time.Second)*revisionsPerSecond)
	}
}

// Finish completes a restore of a data directory whose process was killed while it moved the
// restored data into place, and reports whether there was such a restore. It is called before a
// server reads anything in the directory.
func Finish(dir string) (bool, error) {
	if replaced, _, err := datadir.Restoring(dir); err != nil || replaced == "" {
		// The server reports a problem with the directory.
		return false, nil
	}
	lock, err := etcd.TakeLock(filepath.Join(dir, "etcd"))
	if err != nil {
		return false, fmt.Errorf("a restore of the data directory is not complete: %w", err)
	}
	defer lock.Close()
	if err := finish(dir); err != nil {
		return false, fmt.Errorf("completing the restore of %s: %w", dir, err)
	}
	return true, nil
}

// finish moves the restored data into place, if the file FORMAT records that these moves have
// begun. The caller has the lock. finish may be killed at any point and called again.
func finish(dir string) error {
	name, format, err := datadir.Restoring(dir)
	if err != nil || name == "" {
		return err
	}
	if name != filepath.Base(name) || !strings.HasPrefix(name, replacedPrefix) {
		return fmt.Errorf("the file FORMAT in %s names %q for the replaced data, which no restore does", dir, name)
	}
	replaced, at := filepath.Join(dir, name), filepath.Join(dir, staged)
	for _, part := range parts {
		ready, present, old := filepath.Join(at, part), filepath.Join(dir, part), filepath.Join(replaced, part)
		if !exists(ready) {
			// This part is in place already, or the backup does not have it.
			continue
		}
		if exists(present) {
			if err := os.MkdirAll(filepath.Dir(old), 0o700); err != nil {
				return err
			}
			if err := move(present, old); err != nil {
				return err
			}
		}
		if err := move(ready, present); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(at); err != nil {
		return err
	}
	if err := datadir.Mark(keys.Files{}, dir, format); err != nil {
		return err
	}
	return datadir.Own(dir, replaced, filepath.Join(dir, "FORMAT"))
}

// move renames a directory, and waits until the change is on the disk.
func move(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return errors.Join(datadir.Sync(filepath.Dir(from)), datadir.Sync(filepath.Dir(to)))
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// syncTree waits until a directory and all its content are on the disk.
func syncTree(dir string) error {
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return datadir.Sync(path)
	})
}
