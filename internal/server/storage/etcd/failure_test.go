package etcd

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
)

// Where etcd would end the process silently, the server gets the reason.
func TestWhatEtcdCannotGoOnWithIsAnError(t *testing.T) {
	full := fmt.Errorf("write db: %w", syscall.ENOSPC)
	for _, tc := range []struct {
		name string
		log  func(*zap.Logger)
		want string
	}{
		{"fatal, with its cause", func(l *zap.Logger) { l.Fatal("failed to commit tx", zap.Error(errors.New("no good"))) },
			"failed to commit tx: no good"},
		{"fatal, on a full disk", func(l *zap.Logger) { l.Fatal("failed to commit tx", zap.Error(full)) },
			"failed to commit tx: write db: no space left on device; the disk with DIR is full: free some space and start the server again"},
		{"fatal, on a broken disk", func(l *zap.Logger) { l.Fatal("failed to commit tx", zap.Error(syscall.EIO)) },
			"failed to commit tx: input/output error; check the disk with DIR and start the server again"},
		{"fatal, without a cause", func(l *zap.Logger) { l.Fatal("failed to find a bucket", zap.String("bucket", "key")) },
			"failed to find a bucket: bucket key"},
		{"panic", func(l *zap.Logger) { l.Panic("unexpected leader") }, "unexpected leader"},
		{"panic of the consensus", func(l *zap.Logger) { l.Sugar().Panicf("entry %d is out of range", 7) }, "entry 7 is out of range"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			s, err := Start(t.Context(), Options{Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			logger := s.etcd.GetLogger()
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				tc.log(logger)
				t.Error("etcd goes on after an error that is fatal")
			}()
			<-ended
			want := "etcd in " + dir + " has stopped: " + strings.ReplaceAll(tc.want, "DIR", dir)
			select {
			case err := <-s.Err():
				if err.Error() != want {
					t.Errorf("got %q, want %q", err, want)
				}
			case <-time.After(time.Minute):
				t.Error("nobody was told")
			}
			// The etcd itself has not failed, and can be closed.
			s.failure = newFailure()
			s.Close()
		})
	}
}
