package etcd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
)

// newData makes the data of an etcd with some content, and returns its directory.
func newData(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "etcd-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// An etcd that could not start may still be preparing the next log file.
		for os.RemoveAll(dir) != nil {
		}
	})
	s, err := Start(t.Context(), Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	client, err := NewClient(t.Context(), ClientOptions{Endpoints: []string{s.Endpoint()}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, key := range []string{"a", "b", "c"} {
		if _, err := client.KV.Put(t.Context(), key, strings.Repeat("x", 5000)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestDamagedDataIsAnErrorNotAPanic(t *testing.T) {
	noise := make([]byte, 100_000)
	random := rand.NewChaCha8([32]byte{1})
	random.Read(noise)
	for _, tc := range []struct {
		name, glob string
		damage     func(*os.File) error
		want       string
	}{
		{"database overwritten", "member/snap/db", func(f *os.File) error { _, err := f.WriteAt(noise, 0); return err }, "its database is damaged"},
		{"database overwritten behind its head", "member/snap/db", func(f *os.File) error { _, err := f.WriteAt(noise, 8192); return err }, "its database is damaged"},
		{"database cut off", "member/snap/db", func(f *os.File) error { return f.Truncate(12_000) }, "its database is damaged"},
		{"database empty pages", "member/snap/db", func(f *os.File) error { _, err := f.WriteAt(make([]byte, 100_000), 8192); return err }, "its database is damaged"},
		{"log overwritten", "member/wal/*.wal", func(f *os.File) error { _, err := f.WriteAt(noise[:100], 0); return err }, "its write-ahead log is damaged"},
		{"log empty", "member/wal/*.wal", func(f *os.File) error { return f.Truncate(0) }, "its write-ahead log is damaged"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := newData(t)
			files, err := filepath.Glob(filepath.Join(dir, tc.glob))
			if err != nil || len(files) == 0 {
				t.Fatalf("no file %s: %v", tc.glob, err)
			}
			f, err := os.OpenFile(files[0], os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			if err := tc.damage(f); err != nil {
				t.Fatal(err)
			}
			f.Close()
			s, err := Start(t.Context(), Options{Dir: dir})
			if err == nil {
				s.Close()
				t.Fatal("etcd started on damaged data")
			}
			if !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), dir) {
				t.Errorf("got %q, want the directory and %q", err, tc.want)
			}
		})
	}
}

// With a log that is lost, or was replaced by an older one, etcd would never be ready.
func TestALostLogIsOneSentence(t *testing.T) {
	dir := newData(t)
	logs := filepath.Join(dir, "member", "wal")
	older := filepath.Join(t.TempDir(), "older")
	if err := os.CopyFS(older, os.DirFS(logs)); err != nil {
		t.Fatal(err)
	}
	putMuch(t, dir)
	for _, tc := range []struct {
		name, want string
		lose       func() error
	}{
		{"gone", "its write-ahead log is gone", func() error { return os.RemoveAll(logs) }},
		{"older than the database", "its write-ahead log is damaged (it ends at entry", func() error { return os.CopyFS(logs, os.DirFS(older)) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := tc.lose(); err != nil {
				t.Fatal(err)
			}
			s, err := Start(t.Context(), Options{Dir: dir})
			if err == nil {
				s.Close()
				t.Fatal("etcd started without its log")
			}
			if !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), dir) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %q, want the directory and %q", err, tc.want)
			}
		})
	}
}

// A start that hangs, here because no process writes to the pipe that it reads, ends with its
// context. So does a start that is nearly ready.
func TestAStartCanBeEnded(t *testing.T) {
	const most = 5 * time.Second
	endsAt := func(t *testing.T, dir string, after time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), after)
		defer cancel()
		begun := time.Now()
		s, err := Start(ctx, Options{Dir: dir})
		if took := time.Since(begun); took > after+most {
			t.Errorf("it took %s more than it was given", took-after)
		}
		if err == nil {
			s.Close()
		}
		return err
	}
	t.Run("that hangs", func(t *testing.T) {
		dir := t.TempDir()
		db := filepath.Join(dir, "member", "snap", "db")
		if err := os.MkdirAll(filepath.Dir(db), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(db, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := endsAt(t, dir, 100*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the end of the context", err)
		}
		// The reader of the pipe continues, and finds that it is not a database.
		f, err := os.OpenFile(db, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
	})
	for after := time.Duration(0); after < 150*time.Millisecond; after += 15 * time.Millisecond {
		t.Run(fmt.Sprintf("after %s", after), func(t *testing.T) {
			// An etcd that is stopped may still be preparing the next log file.
			dir, err := os.MkdirTemp("", "etcd-test-")
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(dir)
			if err := endsAt(t, dir, after); err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v, want the end of the context", err)
			}
		})
	}
}

// putMuch adds entries to the data of an etcd, more than the etcd itself adds when it starts.
func putMuch(t *testing.T, dir string) {
	t.Helper()
	s, err := Start(t.Context(), Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	client, err := NewClient(t.Context(), ClientOptions{Endpoints: []string{s.Endpoint()}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for i := range 200 {
		if _, err := client.KV.Put(t.Context(), "much", strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDataSurvivesARestart(t *testing.T) {
	dir := newData(t)
	s, err := Start(t.Context(), Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	client, err := NewClient(t.Context(), ClientOptions{Endpoints: []string{s.Endpoint()}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	response, err := client.KV.Get(context.Background(), "a", clientv3.WithCountOnly())
	if err != nil || response.Count != 1 {
		t.Errorf("key a: %v, %v", response, err)
	}
}

// A member that got its data from another member has a snapshot in its log, and no entries.
func TestASnapshotStandsForEntries(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "wal")
	w, err := wal.Create(zap.NewNop(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	index, term := uint64(218), uint64(2)
	if err := w.SaveSnapshot(&walpb.Snapshot{Index: &index, Term: &term, ConfState: &raftpb.ConfState{}}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	logs, err := filepath.Glob(filepath.Join(dir, "*.wal"))
	if err != nil || len(logs) != 1 {
		t.Fatal(logs, err)
	}
	if last, err := lastEntry(logs[0]); err != nil || last != index {
		t.Errorf("the log ends at entry %d, %v; want %d", last, err, index)
	}
}
