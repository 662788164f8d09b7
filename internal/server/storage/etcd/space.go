package etcd

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.etcd.io/etcd/server/v3/storage/wal"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

const (
	// DefaultMinFree is how many bytes of the disk must be free for clients to write. etcd writes a
	// log in files of 64 MB and reserves the space for the next one as soon as it begins one; it
	// cannot continue when this reservation fails.
	DefaultMinFree = 128 << 20
	// spaceInterval is how often the free space is checked.
	spaceInterval = 100 * time.Millisecond
	// startSpace is the disk space that etcd needs for its database when it starts, in bytes.
	startSpace = 16 << 20
)

// space checks the free space of a disk. It is safe for concurrent use.
type space struct {
	dir string
	// margin is the number of bytes that must be free for writes; 0 when the free space is not
	// checked.
	margin uint64
	free   func(dir string) (uint64, error)
	// short is the number of free bytes while it is less than margin; nil otherwise.
	short atomic.Pointer[uint64]
	// unknown is set while the free space cannot be read.
	unknown bool
}

func newSpace(o Options) *space {
	s := &space{dir: o.Dir, free: o.free}
	if s.free == nil {
		s.free = FreeSpace
	}
	switch {
	case o.MinFree == 0:
		s.margin = DefaultMinFree
	case o.MinFree > 0:
		s.margin = uint64(o.MinFree)
	}
	return s
}

// FreeSpace returns how many bytes a user other than root may still write to the disk that has dir.
func FreeSpace(dir string) (uint64, error) {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(dir, &stat); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return uint64(stat.Bavail) * uint64(stat.Bsize), nil
}

// checkStart returns an error when etcd has no room to start. etcd may start if the free space
// cannot be read.
func (s *space) checkStart() error {
	free, err := s.free(s.dir)
	if err != nil {
		return nil
	}
	need := uint64(startSpace)
	logs := filepath.Join(s.dir, "member", "wal")
	// The file of the log that etcd writes now, and the file that it writes next.
	if found, err := filepath.Glob(filepath.Join(logs, "*.wal")); err == nil && len(found) == 0 {
		need += uint64(wal.SegmentSizeBytes)
	}
	if next, err := os.Stat(filepath.Join(logs, "0.tmp")); err != nil || next.Size() < wal.SegmentSizeBytes {
		need += uint64(wal.SegmentSizeBytes)
	}
	if free >= need {
		return nil
	}
	return fmt.Errorf("the disk with %s is full: %s are free and etcd needs %s to start; free some space", s.dir, mebibytes(free), mebibytes(need+1<<20-1))
}

// run checks the disk until ctx ends.
func (s *space) run(ctx context.Context) {
	if s.margin == 0 {
		return
	}
	tick := time.NewTicker(spaceInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.look()
		case <-ctx.Done():
			return
		}
	}
}

// look checks the disk once, and logs changes. While the free space cannot be read, writes are
// accepted.
func (s *space) look() {
	if s.margin == 0 {
		return
	}
	free, err := s.free(s.dir)
	if err != nil {
		if !s.unknown {
			klog.ErrorS(err, "Cannot read how much disk space is free for etcd; accepting writes")
		}
		s.unknown = true
		s.short.Store(nil)
		return
	}
	s.unknown = false
	was := s.short.Load()
	if free >= s.margin {
		if was != nil {
			s.short.Store(nil)
			klog.Warningf("The disk with %s has %s free again: accepting writes", s.dir, mebibytes(free))
		}
		return
	}
	if was == nil {
		klog.Errorf("The disk with %s is nearly full: %s are free, less than the %s of --min-free-disk; refusing writes until more is free, reads continue",
			s.dir, mebibytes(free), mebibytes(s.margin))
	}
	if was == nil || *was != free {
		s.short.Store(&free)
	}
}

// check returns nil when there is room for writes, else an error with status 503, after which
// clients may retry.
func (s *space) check() error {
	free := s.short.Load()
	if free == nil {
		return nil
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable,
		Message: fmt.Sprintf("the disk of the storage is nearly full: %s are free, less than the %s of --min-free-disk; nothing was written, please try again when more space is free",
			mebibytes(*free), mebibytes(s.margin)),
		Details: &metav1.StatusDetails{RetryAfterSeconds: 1},
	}}
}

// mebibytes writes a number of bytes for people. It rounds down, so that a number below a
// margin is also shown as less than the margin.
func mebibytes(n uint64) string { return fmt.Sprintf("%d MiB", n>>20) }

// guarded is a client that refuses writes while there is no room for them.
type guarded struct {
	kubernetes.Interface
	check func() error
}

// OptimisticPut implements kubernetes.Interface.
func (g *guarded) OptimisticPut(ctx context.Context, key string, value []byte, expected int64, o kubernetes.PutOptions) (kubernetes.PutResponse, error) {
	if err := g.check(); err != nil {
		return kubernetes.PutResponse{}, err
	}
	return g.Interface.OptimisticPut(ctx, key, value, expected, o)
}

// OptimisticDelete implements kubernetes.Interface. Deletions are writes: they take
// space, and give none back to the disk.
func (g *guarded) OptimisticDelete(ctx context.Context, key string, expected int64, o kubernetes.DeleteOptions) (kubernetes.DeleteResponse, error) {
	if err := g.check(); err != nil {
		return kubernetes.DeleteResponse{}, err
	}
	return g.Interface.OptimisticDelete(ctx, key, expected, o)
}
