package etcdtest

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.etcd.io/etcd/client/v3/kubernetes"

	"github.com/gatehouse-dev/gatehouse/internal/server/storage/etcd"
)

// Start starts an empty etcd and returns a client to it. Both are closed at the end of the test.
func Start(tb testing.TB) *kubernetes.Client {
	tb.Helper()
	client, stop, err := start(tb.Context(), tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(stop)
	return client
}

// Main runs the tests of a package that share one etcd, and returns the exit code. It sets *client to a
// client of the etcd before the first test. Each test needs its own prefix of keys.
func Main(m *testing.M, client **kubernetes.Client) int {
	dir, err := os.MkdirTemp("", "etcd-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	made, stop, err := start(context.Background(), dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer stop()
	*client = made
	return m.Run()
}

func start(ctx context.Context, dir string) (*kubernetes.Client, func(), error) {
	server, err := etcd.Start(ctx, etcd.Options{Dir: dir})
	if err != nil {
		return nil, nil, err
	}
	client, err := etcd.NewClient(ctx, etcd.ClientOptions{Endpoints: []string{server.Endpoint()}})
	if err != nil {
		server.Close()
		return nil, nil, err
	}
	server.Direct(client.Client)
	return client, func() {
		client.Close()
		server.Close()
	}, nil
}
