package backup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/kit/scratch"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/datadir"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/etcd"
)

// ErrNotRunning is wrapped by the error of Connect when no server runs.
var ErrNotRunning = errors.New("no server runs on it")

// patience is how long a running server may take to answer, and attempts how often Connect tries: a
// killed process may hold its lock a moment longer than it answers.
const (
	patience = 5 * time.Second
	attempts = 3
)

// Connect connects to the embedded etcd of the server that runs on a data directory. The error
// wraps ErrNotRunning when no server runs on it.
func Connect(ctx context.Context, dir, version string) (s *Source, end func(), err error) {
	if _, err := datadir.Has(dir); err != nil {
		return nil, nil, err
	}
	for range attempts {
		var endpoint string
		endpoint, err = etcd.Running(filepath.Join(dir, "etcd"))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, nil, fmt.Errorf("data directory %s has no embedded etcd: a server with --etcd-servers keeps its data there, and etcdctl works on it", dir)
		case errors.Is(err, etcd.ErrInUse):
			// The server is starting or ending.
			select {
			case <-time.After(patience / 10):
				continue
			case <-ctx.Done():
				return nil, nil, context.Cause(ctx)
			}
		case err != nil:
			return nil, nil, fmt.Errorf("data directory: %w", err)
		case endpoint == "":
			return nil, nil, fmt.Errorf("data directory %s: %w", dir, ErrNotRunning)
		}
		if s, end, err = connect(ctx, dir, version, endpoint, func() {}); err == nil {
			return s, end, nil
		}
	}
	return nil, nil, err
}

// Open is like Connect, and works without a server, too: an etcd of this process then serves a
// copy of the data. The data themselves do not change.
func Open(ctx context.Context, dir, version string) (s *Source, end func(), err error) {
	if s, end, err = Connect(ctx, dir, version); !errors.Is(err, ErrNotRunning) {
		return s, end, err
	}
	temporary, err := scratch.New()
	if err != nil {
		return nil, nil, err
	}
	// The copy is deleted afterwards, so that a crash loses no data. It needs no other members. etcd drops the last
	// writes of a member when it starts without the others.
	several, err := copyData(dir, temporary.Path())
	if err != nil {
		temporary.Remove()
		return nil, nil, err
	}
	server, err := etcd.Start(ctx, etcd.Options{Dir: temporary.Path(), MinFree: -1, NoFsync: true, Alone: several})
	if err != nil {
		temporary.Remove()
		return nil, nil, err
	}
	return connect(ctx, dir, version, server.Endpoint(), func() {
		server.Close()
		temporary.Remove()
	})
}

// copyData copies the data of an etcd that does not run, and reports whether it has several members.
func copyData(dir, to string) (several bool, err error) {
	lock, err := etcd.TakeLock(filepath.Join(dir, "etcd"))
	if err != nil {
		return false, err
	}
	defer lock.Close()
	if several, err = lock.Several(); err != nil {
		return false, err
	}
	if err := lock.Copy(to); err != nil {
		return false, fmt.Errorf("copying the data of %s, which no server runs on: %w; TMPDIR names a directory with more room", dir, err)
	}
	return several, nil
}

// connect makes a client. stop is called when the client has ended.
func connect(ctx context.Context, dir, version, endpoint string, stop func()) (*Source, func(), error) {
	client, err := etcd.NewClient(ctx, etcd.ClientOptions{Endpoints: []string{endpoint}, DialTimeout: patience, CallTimeout: etcd.CommandTimeout})
	if err != nil {
		stop()
		return nil, nil, err
	}
	return &Source{Client: client.Client, DataDir: dir, Version: version}, func() {
		client.Close()
		stop()
	}, nil
}
