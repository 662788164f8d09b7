package etcd

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// killedData is the environment variable with the directory of the data, for a process that
// serves an etcd until it is killed.
const killedData = "GATEHOUSE_TEST_KILLED_ETCD"

// A server that is killed cannot remove its socket. The next server removes it, and does not
// remove the socket of a running server.
func TestSocketsOfKilledServersAreRemoved(t *testing.T) {
	if data := os.Getenv(killedData); data != "" {
		s, err := Start(t.Context(), Options{Dir: data})
		if err != nil {
			t.Fatal(err)
		}
		os.Stdout.WriteString(s.Endpoint() + "\n")
		select {}
	}
	// The names of sockets are short.
	dir, err := os.MkdirTemp("", "sockets-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Setenv("TMPDIR", dir)
	alive, err := Start(t.Context(), Options{Dir: filepath.Join(dir, "alive")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(alive.Close)

	// A file of the user with such a name that is not only a socket stays.
	kept := filepath.Join(dir, socketDirs+"mine")
	if err := os.MkdirAll(kept, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(kept, "letter"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	linked := filepath.Join(dir, socketDirs+"link")
	elsewhere := filepath.Join(dir, "elsewhere")
	if err := os.MkdirAll(elsewhere, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(elsewhere, socketName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, linked); err != nil {
		t.Fatal(err)
	}

	var killed []string
	for _, data := range []string{"first", "second", "second"} {
		socket := serveAndKill(t, filepath.Join(dir, data))
		if _, err := os.Stat(socket); err != nil {
			t.Fatalf("the killed server did not leave its socket: %v", err)
		}
		killed = append(killed, filepath.Dir(socket))
	}
	next, err := Start(t.Context(), Options{Dir: filepath.Join(dir, "next")})
	if err != nil {
		t.Fatal(err)
	}
	socketDir := func(s *Server) string { return filepath.Dir(strings.TrimPrefix(s.Endpoint(), "unix://")) }
	want := []string{socketDir(alive), socketDir(next), kept, linked}
	slices.Sort(want)
	left, err := filepath.Glob(filepath.Join(dir, socketDirs+"*"))
	if err != nil || !slices.Equal(left, want) {
		t.Errorf("%v, %v; want %v, and none of the killed %v", left, err, want, killed)
	}
	if _, err := os.Stat(filepath.Join(elsewhere, socketName)); err != nil {
		t.Errorf("a link was followed: %v", err)
	}
	client, err := NewClient(t.Context(), ClientOptions{Endpoints: []string{alive.Endpoint()}})
	if err != nil {
		t.Fatalf("the server that lives is not reached any more: %v", err)
	}
	defer client.Close()
	if _, err := client.KV.Get(t.Context(), "a", clientv3.WithCountOnly()); err != nil {
		t.Error(err)
	}
	own := socketDir(next)
	next.Close()
	if _, err := os.Stat(own); !os.IsNotExist(err) {
		t.Errorf("a server that was closed left %s: %v", own, err)
	}
}

// serveAndKill starts an etcd in a process of its own and kills that when it serves.
// It returns the path of the socket.
func serveAndKill(t *testing.T, data string) string {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestSocketsOfKilledServersAreRemoved$")
	cmd.Env = append(os.Environ(), killedData+"="+data)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	endpoint, err := bufio.NewReader(stdout).ReadString('\n')
	if killErr := cmd.Process.Kill(); err == nil {
		err = killErr
	}
	// The error of Wait only says that the process was killed.
	_ = cmd.Wait()
	if err != nil {
		t.Fatalf("the server to be killed: %v", err)
	}
	return strings.TrimPrefix(strings.TrimSpace(endpoint), "unix://")
}
