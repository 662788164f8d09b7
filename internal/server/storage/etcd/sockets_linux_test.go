package etcd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// listening returns the names of the unix sockets of this process that listen. Names that begin
// with an at sign are not files, and have no permissions.
func listening(t *testing.T) map[string]bool {
	t.Helper()
	table, err := os.ReadFile("/proc/self/net/unix")
	if err != nil {
		t.Fatal(err)
	}
	own := map[string]bool{}
	descriptors, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range descriptors {
		// A descriptor that has been closed meanwhile did not belong to etcd.
		target, _ := os.Readlink(d)
		if inode, ok := strings.CutPrefix(target, "socket:["); ok {
			own[strings.TrimSuffix(inode, "]")] = true
		}
	}
	found := map[string]bool{}
	for line := range strings.Lines(string(table)) {
		// Num RefCount Protocol Flags Type St Inode Path
		fields := strings.Fields(line)
		const accepts = "00010000"
		if len(fields) == 8 && fields[3] == accepts && own[fields[6]] {
			found[fields[7]] = true
		}
	}
	return found
}

// A client of etcd bypasses admission. Only the user of the server can be such a client: the socket
// of etcd is in a directory of this user.
func TestNobodyElseCanReachTheEmbeddedEtcd(t *testing.T) {
	before := listening(t)
	s, err := Start(t.Context(), Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	socket := strings.TrimPrefix(s.Endpoint(), "unix://")
	after := listening(t)
	for name := range after {
		if !before[name] && name != socket {
			t.Errorf("etcd listens on %s", name)
		}
	}
	if !after[socket] {
		t.Errorf("nothing listens on %s, only on %v", socket, after)
	}
	info, err := os.Stat(filepath.Dir(socket))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o700 {
		t.Errorf("the directory of the socket has permissions %o, want 700", info.Mode().Perm())
	}
}
