package etcd

import (
	"bufio"
	"net"
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
	dir, err := os.MkdirTemp("/tmp", "sockets-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Setenv("TMPDIR", dir)
	// Their sockets are temporary files, since the paths of the data are too long.
	data := func(name string) string { return filepath.Join(dir, strings.Repeat("long", 25), name) }
	alive, err := Start(t.Context(), Options{Dir: data("alive")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(alive.Close)

	// A user's directory with such a name stays if it has more than a socket in it.
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
	for _, name := range []string{"first", "second", "second"} {
		socket := serveAndKill(t, data(name))
		if _, err := os.Stat(socket); err != nil {
			t.Fatalf("the killed server did not leave its socket: %v", err)
		}
		killed = append(killed, filepath.Dir(socket))
	}
	next, err := Start(t.Context(), Options{Dir: data("next")})
	if err != nil {
		t.Fatal(err)
	}
	dirOf := func(s *Server) string { return filepath.Dir(strings.TrimPrefix(s.Endpoint(), "unix://")) }
	want := []string{dirOf(alive), dirOf(next), kept, linked}
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
	own := dirOf(next)
	next.Close()
	if _, err := os.Stat(own); !os.IsNotExist(err) {
		t.Errorf("a server that was closed left %s: %v", own, err)
	}
}

// A socket has a path that every system supports, also where the directories of the data and of temporary files have long
// names.
func TestSocketsHaveShortPaths(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("long", 25))
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", long)
	f, err := makeSocketDir(long)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeSocketDir(f) })
	listener, err := net.Listen("unix", filepath.Join(f.Name(), socketName))
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
}

// A directory for the socket that was copied with the data keeps other users out, too.
func TestOtherUsersDoNotReachTheSocket(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "data-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	there := filepath.Join(dir, socketDir)
	if err := os.Mkdir(there, 0o700); err != nil {
		t.Fatal(err)
	}
	// Mkdir removes the permissions of the umask.
	if err := os.Chmod(there, 0o777); err != nil {
		t.Fatal(err)
	}
	f, err := makeSocketDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer removeSocketDir(f)
	if info, err := os.Stat(there); f.Name() != there || err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%s: %v, %v", f.Name(), info.Mode(), err)
	}
}

// A server whose data have a short path writes to no other directory: its socket is among the data,
// also after a kill.
func TestTheSocketIsAmongTheData(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "data-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Setenv("TMPDIR", filepath.Join(dir, "is-not-there"))
	t.Chdir(dir)
	for name, data := range map[string]string{"an absolute path": filepath.Join(dir, "absolute"), "a relative path": "relative"} {
		t.Run(name, func(t *testing.T) {
			want := filepath.Join(dir, filepath.Base(data), socketDir, socketName)
			if socket := serveAndKill(t, data); socket != want {
				t.Errorf("the socket is %s, want %s", socket, want)
			}
			s, err := Start(t.Context(), Options{Dir: data})
			if err != nil {
				t.Fatal(err)
			}
			if socket := strings.TrimPrefix(s.Endpoint(), "unix://"); socket != want {
				t.Errorf("after a kill, the socket is %s, want %s", socket, want)
			}
			s.Close()
			if _, err := os.Stat(filepath.Dir(want)); !os.IsNotExist(err) {
				t.Errorf("a server that was closed left its socket: %v", err)
			}
		})
	}
	for name, data := range map[string]string{"a long path": strings.Repeat("long", 25), "a path that a URL writes in another way": "a b"} {
		_, err := Start(t.Context(), Options{Dir: data})
		if err == nil || !strings.Contains(err.Error(), "TMPDIR") {
			t.Errorf("%s: %v; want an error that says what to do", name, err)
		}
	}
}

// serveAndKill starts an etcd in a process of its own and kills the process when the etcd serves.
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
	// The error of Wait only reports that the process was killed.
	_ = cmd.Wait()
	if err != nil {
		t.Fatalf("the server to be killed: %v", err)
	}
	return strings.TrimPrefix(strings.TrimSpace(endpoint), "unix://")
}
