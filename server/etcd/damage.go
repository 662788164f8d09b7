package etcd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/embed"
)

// startSafely starts etcd and returns an error where etcd itself would panic on
// data that it cannot make sense of.
func startSafely(cfg *embed.Config) (e *embed.Etcd, err error) {
	if err := checkDatabase(filepath.Join(cfg.Dir, "member", "snap", "db")); err != nil {
		return nil, err
	}
	defer func() {
		// What has no words of its own is a log whose beginning is gone.
		if p := recover(); p != nil {
			e, err = nil, fmt.Errorf("its write-ahead log is damaged (%v)", p)
		}
	}()
	return embed.StartEtcd(cfg)
}

// checkDatabase visits every page of the database before etcd does, which does
// so in goroutines of its own, where nobody can recover from its panic. A file
// that is not there is in order. The cost is small beside what etcd itself does
// with every entry when it starts.
func checkDatabase(path string) (err error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	// The file is mapped into memory: reading beyond its end is a fault.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("its database is damaged (%v)", p)
		}
	}()
	db, err := bolt.Open(path, 0o400, &bolt.Options{ReadOnly: true})
	if err != nil {
		return fmt.Errorf("its database is damaged (%w)", err)
	}
	defer db.Close()
	return db.View(func(tx *bolt.Tx) error {
		return tx.ForEach(func(_ []byte, b *bolt.Bucket) error {
			c := b.Cursor()
			for k, _ := c.First(); k != nil; k, _ = c.Next() {
			}
			return nil
		})
	})
}
