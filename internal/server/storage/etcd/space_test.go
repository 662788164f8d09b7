package etcd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// disk is a disk with an amount of free space that a test sets.
type disk struct {
	free   atomic.Uint64
	broken atomic.Bool
}

func (d *disk) space(string) (uint64, error) {
	if d.broken.Load() {
		return 0, errors.New("no answer")
	}
	return d.free.Load(), nil
}

const mib = 1 << 20

// start starts an etcd and returns it with a client. Both end with the test.
func start(t *testing.T, o Options) (*Server, *kubernetes.Client) {
	t.Helper()
	s, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	client, err := NewClient(t.Context(), ClientOptions{Endpoints: []string{s.Endpoint()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return s, client
}

// await waits until cond holds.
func await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

func TestWritesAreRefusedWhileTheDiskIsNearlyFull(t *testing.T) {
	d := &disk{}
	d.free.Store(200 * mib)
	s, client := start(t, Options{Dir: t.TempDir(), MinFree: 100 * mib, free: d.space})
	guarded := s.Guard(client.Kubernetes)
	ctx := t.Context()
	created, err := guarded.OptimisticPut(ctx, "a", []byte("1"), 0, kubernetes.PutOptions{})
	if err != nil || !created.Succeeded {
		t.Fatalf("with enough space: %v, %v", created, err)
	}

	d.free.Store(99*mib + 1)
	await(t, "the disk is found to be full", func() bool { return s.space.check() != nil })
	_, put := guarded.OptimisticPut(ctx, "b", []byte("1"), 0, kubernetes.PutOptions{})
	_, deleted := guarded.OptimisticDelete(ctx, "a", created.Revision, kubernetes.DeleteOptions{})
	for verb, err := range map[string]error{"put": put, "delete": deleted} {
		after, ok := apierrors.SuggestsClientDelay(err)
		if !apierrors.IsServiceUnavailable(err) || !ok || after != 1 {
			t.Errorf("%s: %v, want 503 and to try again after 1 s", verb, err)
		} else if want := "99 MiB are free, less than the 100 MiB of --min-free-disk; nothing was written"; !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, want %q in it", verb, err, want)
		}
	}
	if got, err := guarded.Get(ctx, "a", kubernetes.GetOptions{}); err != nil || got.KV == nil {
		t.Errorf("a read: %v, %v", got, err)
	}
	if got, err := guarded.Get(ctx, "b", kubernetes.GetOptions{}); err != nil || got.KV != nil {
		t.Errorf("what was refused: %v, %v, want nothing", got, err)
	}

	d.free.Store(100 * mib)
	await(t, "there is space again", func() bool { return s.space.check() == nil })
	if got, err := guarded.OptimisticPut(ctx, "b", []byte("1"), 0, kubernetes.PutOptions{}); err != nil || !got.Succeeded {
		t.Errorf("with space again: %v, %v", got, err)
	}

	d.free.Store(0)
	await(t, "the disk is found to be full again", func() bool { return s.space.check() != nil })
	d.broken.Store(true)
	await(t, "a disk that does not answer keeps nobody from writing", func() bool { return s.space.check() == nil })
}

func TestADiskIsNotWatchedWithoutAMargin(t *testing.T) {
	d := &disk{}
	d.free.Store(200 * mib)
	s := newSpace(Options{Dir: t.TempDir(), MinFree: -1, free: d.space})
	d.free.Store(0)
	if s.look(); s.check() != nil {
		t.Errorf("got %v", s.check())
	}
}

// etcd reserves space for its log when it starts. Without that space, etcd would begin to
// serve, and fail later when it writes its log.
func TestStartingOnAFullDiskSaysSo(t *testing.T) {
	d := &disk{}
	dir := t.TempDir()
	for _, tc := range []struct {
		name       string
		free       uint64
		want       string
		hasLog     bool
		hasReserve bool
	}{
		{"nothing there, enough", 139 * mib, "", false, false},
		{"nothing there, not enough", 138 * mib, "138 MiB are free and etcd needs 139 MiB to start", false, false},
		{"with a log, enough", 78 * mib, "", true, false},
		{"with a log, not enough", 60 * mib, "60 MiB are free and etcd needs 78 MiB to start", true, false},
		{"with a log and space for the next, enough", 16 * mib, "", true, true},
		{"with a log and space for the next, not enough", 15 * mib, "15 MiB are free and etcd needs 16 MiB to start", true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			logs := filepath.Join(dir, "member", "wal")
			if err := os.MkdirAll(logs, 0o700); err != nil {
				t.Fatal(err)
			}
			for name, make := range map[string]bool{"0000000000000000-0000000000000000.wal": tc.hasLog, "0.tmp": tc.hasReserve} {
				if make {
					if err := os.WriteFile(filepath.Join(logs, name), nil, 0o600); err != nil {
						t.Fatal(err)
					}
					if err := os.Truncate(filepath.Join(logs, name), 64_000_000); err != nil {
						t.Fatal(err)
					}
				}
			}
			d.free.Store(tc.free)
			err := newSpace(Options{Dir: dir, free: d.space}).checkStart()
			if tc.want == "" {
				if err != nil {
					t.Errorf("got %v", err)
				}
				return
			}
			if want := fmt.Sprintf("the disk with %s is full: %s; free some space", dir, tc.want); err == nil || err.Error() != want {
				t.Errorf("got %v, want %q", err, want)
			}
		})
	}
	d.free.Store(1 * mib)
	if s, err := Start(t.Context(), Options{Dir: dir, free: d.space}); err == nil {
		s.Close()
		t.Error("etcd started on a full disk")
	} else if !strings.Contains(err.Error(), "1 MiB are free") {
		t.Errorf("got %v", err)
	}
}

// fill writes to an etcd until it refuses to store more, and returns the last key.
func fill(t *testing.T, client *kubernetes.Client) string {
	t.Helper()
	// On a slow machine each request is a transaction of the database, which frees the pages next to the
	// written ones. With many small values in each, the database is in use nearly to the end all the same.
	const each = 64
	value := strings.Repeat("x", 4<<10)
	last := ""
	for i := range 1000 {
		var puts []clientv3.Op
		for j := range each {
			puts = append(puts, clientv3.OpPut(fmt.Sprintf("key-%06d", i*each+j), value))
		}
		_, err := client.KV.Txn(t.Context()).Then(puts...).Commit()
		if errors.Is(err, rpctypes.ErrNoSpace) {
			return last
		}
		if err != nil {
			t.Fatal(err)
		}
		last = string(puts[each-1].KeyBytes())
	}
	t.Fatal("the quota is not kept")
	return ""
}

// etcd's alarm remains after its cause is removed, until a client clears it.
func TestAFullDatabaseTakesWritesAgainWhenThereIsRoom(t *testing.T) {
	d := &disk{}
	d.free.Store(1000 * mib)
	s, client := start(t, Options{Dir: t.TempDir(), Quota: 8 * mib, free: d.space})
	ctx := t.Context()
	last := fill(t, client)
	watch := &quota{limit: 8 * mib, space: s.space}
	lifted := func() bool {
		t.Helper()
		if err := watch.look(ctx, s.etcd.Server, time.Now()); err != nil {
			t.Fatal(err)
		}
		_, err := client.KV.Put(ctx, "small", "x")
		if err != nil && !errors.Is(err, rpctypes.ErrNoSpace) {
			t.Fatal(err)
		}
		return err == nil
	}
	if lifted() {
		t.Error("a full database takes writes")
	}
	var revision int64
	remove := func(key string, others ...clientv3.OpOption) {
		t.Helper()
		deleted, err := client.KV.Delete(ctx, key, others...)
		if err != nil {
			t.Fatalf("a full database takes no deletions: %v", err)
		}
		revision = deleted.Header.Revision
	}
	remove("key-", clientv3.WithRange(last))
	if lifted() {
		t.Error("what was deleted is still in the history, and room for it")
	}
	d.free.Store(mib)
	if _, err := client.KV.Compact(ctx, revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	// The database counts pages as free when it is written the next time.
	remove(last)
	await(t, "the database is found to be too large for a copy on the disk", func() bool {
		err := watch.look(ctx, s.etcd.Server, time.Now())
		return err != nil && strings.Contains(err.Error(), "has 1 MiB free, but a copy of the database needs")
	})
	d.free.Store(1000 * mib)
	await(t, "writes are accepted", lifted)
	if size := s.etcd.Server.Backend().Size(); size > 4*mib {
		t.Errorf("the database still has %d bytes", size)
	}
}

// Deleted values of a full database leave the history without a client's compaction, and make room.
func TestAFullDatabaseIsCompacted(t *testing.T) {
	d := &disk{}
	d.free.Store(1000 * mib)
	s, client := start(t, Options{Dir: t.TempDir(), Quota: 8 * mib, free: d.space})
	fill(t, client)
	if _, err := client.KV.Delete(t.Context(), "key-", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	watch, begun := &quota{limit: 8 * mib, space: s.space}, time.Now()
	writes := func(after time.Duration) bool {
		t.Helper()
		if err := watch.look(t.Context(), s.etcd.Server, begun.Add(after)); err != nil {
			t.Fatal(err)
		}
		_, err := client.KV.Put(t.Context(), "small", "x")
		return err == nil
	}
	if writes(0) || writes(history-time.Second) {
		t.Error("what was deleted is still in the history, and room for it")
	}
	await(t, "writes are accepted", func() bool {
		// The database counts pages as free when it is written the next time.
		s.etcd.Server.Backend().ForceCommit()
		return writes(history)
	})
}

func TestALargerQuotaLetsWritesIn(t *testing.T) {
	dir := t.TempDir()
	func() {
		s, err := Start(t.Context(), Options{Dir: dir, Quota: 4 * mib})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		client, err := NewClient(t.Context(), ClientOptions{Endpoints: []string{s.Endpoint()}})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		fill(t, client)
	}()
	_, client := start(t, Options{Dir: dir, Quota: 64 * mib})
	await(t, "writes are accepted", func() bool {
		_, err := client.KV.Put(context.Background(), "one more", "x")
		return err == nil
	})
}
