package etcd

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"google.golang.org/protobuf/proto"
)

// startSafely starts etcd. For data that etcd cannot read it returns an error where etcd itself
// would panic, end the process or never be ready. It returns as soon as ctx ends; an etcd that
// starts after that is stopped again.
func startSafely(ctx context.Context, cfg *embed.Config, f *failure) (*embed.Etcd, error) {
	type result struct {
		etcd *embed.Etcd
		err  error
	}
	done := make(chan result, 1)
	go func() {
		var r result
		defer func() {
			if p := recover(); p != nil {
				r.err = logDamaged(p)
			} else if err := f.get(); err != nil {
				r.err = err
				// etcd's own errors about its database name the database.
				if what := err.Error(); strings.Contains(what, "WAL") || strings.Contains(what, "raft") {
					r.err = logDamaged(err)
				}
			}
			done <- r
		}()
		if r.err = checkData(filepath.Join(cfg.Dir, "member")); r.err != nil {
			return
		}
		r.etcd, r.err = embed.StartEtcd(cfg)
	}()
	select {
	case r := <-done:
		return r.etcd, r.err
	case <-ctx.Done():
		go func() {
			if r := <-done; r.etcd != nil {
				closeEtcd(r.etcd, func() {})
			}
		}()
		return nil, context.Cause(ctx)
	}
}

// logDamaged converts an error or a panic of etcd about its log to an error. A full disk does not
// count as damage.
func logDamaged(cause any) error {
	if err, ok := cause.(error); ok && errors.Is(err, syscall.ENOSPC) {
		return err
	}
	return fmt.Errorf("its write-ahead log is damaged (%v)", cause)
}

// checkData returns an error for data with which etcd would panic, or never be ready.
func checkData(dir string) error {
	reached, err := checkDatabase(filepath.Join(dir, "snap", "db"))
	if err != nil || reached == 0 {
		return err
	}
	logs, err := filepath.Glob(filepath.Join(dir, "wal", "*.wal"))
	if err != nil {
		return err
	}
	if len(logs) == 0 {
		return errors.New("its write-ahead log is gone, and the database alone is not complete: restore a backup")
	}
	// etcd itself finds other damage to the log, and may repair it.
	if last, err := lastEntry(slices.Max(logs)); err == nil && last < reached {
		return fmt.Errorf("its write-ahead log is damaged (it ends at entry %d, and the database has entry %d): restore a backup", last, reached)
	}
	return nil
}

// lastEntry returns the number of the last entry in a file of the write-ahead log, or the number of
// the last entry before the file when the file has no entry. A snapshot, which a member gets from
// another member, includes all entries before it. An entry is on disk before it gets into the
// database. etcd would give the numbers of lost entries to new entries, and would not write these
// to the database.
func lastEntry(path string) (uint64, error) {
	var sequence, next uint64
	if _, err := fmt.Sscanf(filepath.Base(path), "%016x-%016x.wal", &sequence, &next); err != nil {
		return 0, err
	}
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	last := max(next, 1) - 1
	decoder := wal.NewDecoder(fileutil.NewFileReader(f))
	for {
		var record walpb.Record
		switch err := decoder.Decode(&record); {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return last, nil
		case err != nil:
			return 0, err
		}
		switch record.GetType() {
		case wal.EntryType:
			last = wal.MustUnmarshalEntry(record.GetData()).GetIndex()
		case wal.SnapshotType:
			var snapshot walpb.Snapshot
			if err := proto.Unmarshal(record.GetData(), &snapshot); err != nil {
				return 0, err
			}
			last = max(last, snapshot.GetIndex())
		case wal.CrcType:
			decoder.UpdateCRC(record.GetCrc())
		}
	}
}

// checkDatabase visits every page of the database before etcd does, and returns the last log entry
// in the database. etcd visits the pages in goroutines of its own, whose panics cannot be
// recovered. A missing file is valid. The cost is small compared with the work of etcd itself,
// which reads every entry when it starts.
func checkDatabase(path string) (reached uint64, err error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	err = readDatabase(path, func(tx *bolt.Tx) error {
		if meta := tx.Bucket(schema.Meta.Name()); meta != nil {
			if index := meta.Get(schema.MetaConsistentIndexKeyName); len(index) == 8 {
				reached = binary.BigEndian.Uint64(index)
			}
		}
		return tx.ForEach(func(_ []byte, b *bolt.Bucket) error {
			c := b.Cursor()
			for k, _ := c.First(); k != nil; k, _ = c.Next() {
			}
			return nil
		})
	})
	return reached, err
}

// Values calls each with the values of all keys in a database that no etcd has open, older values
// of a key first. A deleted key has an empty value last.
func Values(path string, each func(*mvccpb.KeyValue)) error {
	return readDatabase(path, func(tx *bolt.Tx) error {
		revisions := tx.Bucket(schema.Key.Name())
		if revisions == nil {
			return nil
		}
		return revisions.ForEach(func(_, data []byte) error {
			kv := &mvccpb.KeyValue{}
			if err := proto.Unmarshal(data, kv); err != nil {
				return err
			}
			each(kv)
			return nil
		})
	})
}

// databaseTimeout is how long readDatabase waits for another process that has the database. The lock of the
// directory excludes other processes except tools such as etcdutl, and an etcd of this process that is still
// closing.
const databaseTimeout = closeTimeout + time.Second

// readDatabase reads a database that may be damaged. The caller has the lock of the directory.
func readDatabase(path string, read func(*bolt.Tx) error) (err error) {
	// The file is mapped into memory: reading beyond its end is a fault.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("its database is damaged (%v)", p)
		}
	}()
	db, err := bolt.Open(path, 0o400, &bolt.Options{ReadOnly: true, Timeout: databaseTimeout})
	if errors.Is(err, berrors.ErrTimeout) {
		return fmt.Errorf("its database %s is in use by another program, such as etcdutl: wait for its end, or end it", path)
	}
	if err != nil {
		return fmt.Errorf("its database is damaged (%w)", err)
	}
	defer db.Close()
	return db.View(read)
}
