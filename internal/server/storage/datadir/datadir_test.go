package datadir

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/server/handling/keys"
	"github.com/gatehouse-dev/gatehouse/test/etcdtest"
)

// A directory of another format is refused, and not changed.
func TestAnotherFormatIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	for range 2 {
		if err := Prepare(keys.Files{}, dir); err != nil {
			t.Fatal(err)
		}
	}
	const next = "gatehouse data directory, format 3\n"
	name := filepath.Join(dir, formatName)
	if err := os.WriteFile(name, []byte(next), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Prepare(keys.Files{}, dir); err == nil || !strings.Contains(err.Error(), "was written by another version") {
		t.Errorf("a directory of format 3: %v", err)
	}
	if text, err := os.ReadFile(name); err != nil || string(text) != next {
		t.Errorf("the file has %q, %v", text, err)
	}
}

// S29.9: a directory has the format that older releases read, until values may be encrypted.
func TestTheFormatRisesWithEncryption(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	for i, do := range []func() error{
		func() error { return Prepare(keys.Files{}, dir) },
		func() error { return MarkEncrypted(keys.Files{}, dir) },
		func() error { return errors.Join(Prepare(keys.Files{}, dir), MarkEncrypted(keys.Files{}, dir)) },
	} {
		want := i + 1
		if err := do(); err != nil {
			t.Fatal(err)
		}
		if format, err := Has(dir); err != nil || format != min(want, Format) || Encrypted(format) != (want > 1) {
			t.Errorf("step %d: %d, %v", want, format, err)
		}
	}
	if err := MarkRestoring(keys.Files{}, dir, Format, "x"); err != nil {
		t.Fatal(err)
	}
	if replaced, format, err := Restoring(dir); replaced != "x" || format != Format || err != nil {
		t.Errorf("%q, %d, %v", replaced, format, err)
	}
}

// Servers that start together on an etcd agree on its format. A server that reads another format is
// refused, and the data stay.
func TestServersOnOneEtcdHaveOneFormat(t *testing.T) {
	kv := etcdtest.Start(t).KV
	const key = "/registry/gatehouse/format"
	var starting sync.WaitGroup
	for range 8 {
		starting.Go(func() {
			if err := Agree(t.Context(), kv, key); err != nil {
				t.Error(err)
			}
		})
	}
	starting.Wait()
	const next = "gatehouse data, format 2"
	if _, err := kv.Put(t.Context(), key, next); err != nil {
		t.Fatal(err)
	}
	if err := Agree(t.Context(), kv, key); err == nil || !strings.Contains(err.Error(), "--etcd-prefix") {
		t.Errorf("an etcd of format 2: %v", err)
	}
	if found, err := kv.Get(t.Context(), key); err != nil || string(found.Kvs[0].Value) != next {
		t.Errorf("the key has %q, %v", found.Kvs, err)
	}
}
