package gatehousetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/discovery"
)

// lockVariable is the environment variable with the file that keeps a server running while it is locked.
const lockVariable = "GATEHOUSE_END_WITH_LOCK"

// joinTimeout limits the wait for a server that another process started.
const joinTimeout = 30 * time.Second

// ofTheRun is the shared server of the packages, for tests with the option Shared.
var ofTheRun = sync.OnceValues(func() (*process, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	// All test processes of a run have the same parent: go.
	return join(filepath.Join(cache, "gatehouse", "shared"), strconv.Itoa(os.Getppid()))
})

// join returns the server of a run, and starts it if there is none. Each server has a file
// in dir with the path of its kubeconfig. This process keeps the file locked while it lives.
func join(dir, run string) (*process, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	// Only one process at a time looks for a server and starts one.
	starting, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer starting.Close()
	if err := syscall.Flock(int(starting.Fd()), syscall.LOCK_EX); err != nil {
		return nil, fmt.Errorf("locking %s: %w", dir, err)
	}
	there, err := filepath.Glob(filepath.Join(dir, run+"-*"))
	if err != nil {
		return nil, err
	}
	for _, path := range there {
		if s, err := joinAt(path); err == nil {
			return s, nil
		}
		// The server of this file has ended, or is about to end.
		_ = os.Remove(path)
	}
	users, err := os.CreateTemp(dir, run+"-")
	if err != nil {
		return nil, err
	}
	s, err := startShared(users)
	if err != nil {
		users.Close()
		_ = os.Remove(users.Name())
		return nil, err
	}
	return s, nil
}

// startShared starts a server that lives as long as a process has locked the file.
func startShared(users *os.File) (*process, error) {
	if err := syscall.Flock(int(users.Fd()), syscall.LOCK_SH); err != nil {
		return nil, err
	}
	s, err := startProcess(nil, lockVariable+"="+users.Name())
	if err != nil {
		return nil, err
	}
	if _, err := users.WriteString(s.kubeconfig); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	s.users = users
	return s, nil
}

// joinAt locks the file of a server, and returns the server if it is ready.
func joinAt(path string) (*process, error) {
	users, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	s, err := joinServer(users)
	if err != nil {
		users.Close()
	}
	return s, err
}

func joinServer(users *os.File) (*process, error) {
	// A server that ends locks the file, and removes it before it releases the lock.
	if err := syscall.Flock(int(users.Fd()), syscall.LOCK_SH); err != nil {
		return nil, err
	}
	if _, err := os.Stat(users.Name()); err != nil {
		return nil, err
	}
	kubeconfig, err := io.ReadAll(users)
	if err != nil {
		return nil, err
	}
	s := &process{kubeconfig: string(kubeconfig), users: users}
	if s.binary, err = binary(); err != nil {
		return nil, err
	}
	if err := s.readKubeconfig(); err != nil {
		return nil, err
	}
	client, err := discovery.NewDiscoveryClientForConfig(s.admin)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), joinTimeout)
	defer cancel()
	_, err = client.RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
	return s, err
}
