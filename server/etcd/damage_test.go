package etcd

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// newData makes the data of an etcd that holds something, and returns its
// directory.
func newData(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "etcd-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// An etcd that could not start may still be making the next log file ready.
		for os.RemoveAll(dir) != nil {
		}
	})
	s, err := Start(t.Context(), dir)
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
			s, err := Start(t.Context(), dir)
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

func TestDataSurvivesARestart(t *testing.T) {
	dir := newData(t)
	s, err := Start(t.Context(), dir)
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
