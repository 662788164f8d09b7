package encryption

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/gatehouse-dev/gatehouse/internal/server/handling/keys"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/datadir"
	"github.com/gatehouse-dev/gatehouse/test/etcdtest"
)

// S29.7: keys are in a file that only its owner may read. A new key comes first. The previous key
// and the needed keys stay. The data directory then has a format that older releases refuse.
func TestKeysOfADataDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	if err := datadir.Prepare(keys.Files{}, dir); err != nil {
		t.Fatal(err)
	}
	if names, err := KeyNames(dir); err != nil || names != nil {
		t.Errorf("before: %q, %v", names, err)
	}
	var names []string
	for i := range 4 {
		name, err := AddKey(dir, time.Unix(int64(i), 0), func(name string) bool { return len(names) > 0 && name == names[0] })
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	// The third key reads the values that it encrypted, the first one is needed, and the second one
	// is not.
	if got, err := KeyNames(dir); err != nil || !slices.Equal(got, []string{names[3], names[2], names[0]}) {
		t.Errorf("%q, %v", got, err)
	}
	for path, mode := range map[string]os.FileMode{OwnFile(dir): 0o600, filepath.Dir(OwnFile(dir)): 0o700 | os.ModeDir} {
		if info, err := os.Stat(path); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	if format, err := datadir.Has(dir); err != nil || !datadir.Encrypted(format) {
		t.Errorf("format %d, %v", format, err)
	}
	if by := By(written(t, opened(t, Options{File: OwnFile(dir)}), "x").Value); by != (Key{OwnProvider, names[3]}) {
		t.Errorf("written with %v", by)
	}
	unlock, err := Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(dir); err == nil {
		t.Error("two processes have the lock")
	}
	unlock()
	// A file of the user's own is not overwritten.
	configuration(t, OwnFile(dir), provider("aesgcm", "one", key1))
	if _, err := AddKey(dir, time.Now(), nil); err == nil || !strings.Contains(err.Error(), OwnFile(dir)) {
		t.Errorf("another file: %v", err)
	}
}

// S29.5: a server with an embedded etcd begins to use the file in its data directory when the file
// appears.
func TestTheFileInADataDirectoryMayAppear(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	if err := datadir.Prepare(keys.Files{}, dir); err != nil {
		t.Fatal(err)
	}
	values := opened(t, Options{File: OwnFile(dir), Reload: true, Own: true})
	if err := values.Reload(t.Context()); err != nil || values.Hash() != "" {
		t.Errorf("without a file: %v, hash %q", err, values.Hash())
	}
	stored := written(t, values, "x")
	if _, err := AddKey(dir, time.Now(), nil); err != nil {
		t.Fatal(err)
	}
	if err := values.Reload(t.Context()); err != nil || values.Hash() == "" {
		t.Errorf("with a file: %v, hash %q", err, values.Hash())
	}
	if plain, err := values.Plain(t.Context(), Secrets, stored); err != nil || string(plain) != "x" {
		t.Errorf("what was stored before: %q, %v", plain, err)
	}
	if by := By(written(t, values, "x").Value); by.Provider != OwnProvider {
		t.Errorf("written with %v", by)
	}
}

// S29.8: values that are not encrypted with the first key are encrypted anew, and keep their
// leases. A value that another client writes meanwhile stays. Other resources are not changed.
func TestRewrite(t *testing.T) {
	const root = "/rewrite"
	etcd := etcdtest.Start(t)
	put := func(key, text string, options ...clientv3.OpOption) {
		t.Helper()
		if _, err := etcd.Put(t.Context(), root+key, text, options...); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "encryption.yaml")
	configuration(t, file, provider("secretbox", "one", key1), unencrypted)
	one := opened(t, Options{File: file})
	encrypted := func(values *Transformers, key, text string) string {
		t.Helper()
		stored, err := values.TransformerForResource(Secrets).TransformToStorage(t.Context(), []byte(text), contextOf(root+key))
		if err != nil {
			t.Fatal(err)
		}
		return string(stored)
	}
	lease, err := etcd.Grant(t.Context(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	put("/secrets/a/clear", "clear", clientv3.WithLease(lease.ID))
	put("/secrets/a/old", encrypted(one, "/secrets/a/old", "old"))
	put("/"+SharedKeys+"/ca", "shared")
	put("/secretsother/x", "other")
	configuration(t, file, provider("secretbox", "two", key2), provider("secretbox", "one", key1), unencrypted)
	two := opened(t, Options{File: file})
	put("/secrets/b/new", encrypted(two, "/secrets/b/new", "new"))
	before := stored(t, etcd.KV, root)
	if counts, err := Count(t.Context(), etcd.KV, root); err != nil || counts[Key{}] != 2 || counts[Key{"secretbox", "one"}] != 1 || counts[Key{"secretbox", "two"}] != 1 {
		t.Errorf("%v, %v", counts, err)
	}
	racing := &racing{KV: etcd.KV, write: func() { put("/secrets/a/old", encrypted(two, "/secrets/a/old", "newer")) }}
	if n, err := two.Rewrite(t.Context(), racing, root); err != nil || n != 2 {
		t.Errorf("%d, %v", n, err)
	}
	after := stored(t, etcd.KV, root)
	for key, text := range map[string]string{"/secrets/a/clear": "clear", "/secrets/a/old": "newer", "/secrets/b/new": "new", "/" + SharedKeys + "/ca": "shared"} {
		kv := after[root+key]
		if plain, err := two.Plain(t.Context(), Secrets, kv); err != nil || string(plain) != text || By(kv.Value).Name != "two" {
			t.Errorf("%s: %q by %v, %v", key, plain, By(kv.Value), err)
		}
	}
	if after[root+"/secrets/a/clear"].Lease != int64(lease.ID) {
		t.Error("the lease is gone")
	}
	for _, key := range []string{"/secrets/b/new", "/secretsother/x"} {
		if after[root+key].ModRevision != before[root+key].ModRevision {
			t.Errorf("%s was written", key)
		}
	}
	if n, err := two.Rewrite(t.Context(), etcd.KV, root); err != nil || n != 0 {
		t.Errorf("again: %d, %v", n, err)
	}
	// The error names a Secret that no key can read.
	configuration(t, file, provider("secretbox", "three", key1), unencrypted)
	if _, err := opened(t, Options{File: file}).Rewrite(t.Context(), etcd.KV, root); !errors.As(err, new(*Unreadable)) {
		t.Errorf("a lost key: %v", err)
	}
}
