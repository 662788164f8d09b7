package etcd

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// A process that is killed while it makes the database smaller leaves a copy. The next process removes
// the copy, and no other file.
func TestCopiesOfTheDatabaseAreRemoved(t *testing.T) {
	dir := t.TempDir()
	s, err := Start(t.Context(), Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	snap := filepath.Join(dir, "member", "snap")
	for _, name := range []string{"db.tmp.123", "db.tmp.456", "kept"} {
		if err := os.WriteFile(filepath.Join(snap, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if s, err = Start(t.Context(), Options{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	left, err := filepath.Glob(filepath.Join(snap, "*"))
	if want := []string{filepath.Join(snap, "db"), filepath.Join(snap, "kept")}; err != nil || !slices.Equal(left, want) {
		t.Errorf("%v, %v; want %v", left, err, want)
	}
}

func TestDefragPays(t *testing.T) {
	const mib = 1 << 20
	for _, tt := range []struct {
		name        string
		size, inUse int64
		want        bool
	}{
		{"little to give back", 120 * mib, 1 * mib, false},
		{"less than half to give back", 250 * mib, 126 * mib, false},
		{"much to give back", 256 * mib, 100 * mib, true},
		{"the pause would be long", 1000 * mib, 129 * mib, false},
		{"an empty database", 0, 0, false},
	} {
		if got := pays(tt.size, tt.inUse); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}

// A database that has shrunk gives back its space to the disk, once in an hour, and only when the
// disk has room for the copy. The database keeps its keys.
func TestTheDatabaseIsMadeSmaller(t *testing.T) {
	s, err := Start(t.Context(), Options{Dir: t.TempDir(), MinFree: -1, NoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	client, err := NewClient(t.Context(), ClientOptions{Endpoints: []string{s.Endpoint()}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	s.Direct(client.Client)
	value := strings.Repeat("x", 1<<20)
	fill := func() {
		t.Helper()
		for i := range spareLeast>>20 + 20 {
			if _, err := client.KV.Txn(t.Context()).Then(clientv3.OpPut(fmt.Sprintf("/k/%d", i), value)).Commit(); err != nil {
				t.Fatal(err)
			}
		}
		gone, err := client.KV.Delete(t.Context(), "/k/", clientv3.WithPrefix())
		if err != nil {
			t.Fatal(err)
		}
		kept, err := client.KV.Put(t.Context(), "kept", "value")
		if err != nil || gone.Deleted == 0 {
			t.Fatal(err)
		}
		if _, err := client.KV.Compact(t.Context(), kept.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
			t.Fatal(err)
		}
		// The pages are free after the next commit.
		for begun := time.Now(); s.etcd.Server.Backend().SizeInUse() > 10<<20; time.Sleep(10 * time.Millisecond) {
			s.etcd.Server.Backend().ForceCommit()
			if time.Since(begun) > time.Minute {
				t.Fatal("what was deleted is still in use")
			}
		}
	}
	fill()
	free := uint64(1 << 20)
	q := &quota{limit: DefaultQuota, space: &space{margin: 1 << 20, free: func(string) (uint64, error) { return free, nil }}}
	database, now := s.etcd.Server.Backend(), time.Now()
	before := database.Size()
	tidy := func(at time.Time) int64 {
		t.Helper()
		if err := q.tidy(database, at); err != nil {
			t.Fatal(err)
		}
		return database.Size()
	}
	if size := tidy(now); size != before {
		t.Errorf("the disk has no room, and the database has %d bytes, %d before", size, before)
	}
	free = 1 << 40
	if size := tidy(now); size > before/10 {
		t.Errorf("%d bytes, %d before", size, before)
	}
	fill()
	before = database.Size()
	if size := tidy(now.Add(tidyInterval - time.Second)); size != before {
		t.Errorf("twice in an hour: %d bytes, %d before", size, before)
	}
	if size := tidy(now.Add(tidyInterval)); size > before/10 {
		t.Errorf("an hour later: %d bytes, %d before", size, before)
	}
	r, err := client.KV.Get(t.Context(), "kept")
	if err != nil || len(r.Kvs) != 1 {
		t.Errorf("%v, %v", r, err)
	}
}
