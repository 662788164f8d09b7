package replicas

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/server/storage/etcd"
	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// S31.20: a command that works on the files of an etcd refuses data in use by a server, and names the server.
func TestCommandsNextToAServer(t *testing.T) {
	t.Parallel()
	s := sharedFleet(t, joined, "--admission-consistency", "strict").servers[0]
	good := filepath.Join(t.TempDir(), "good.tar")
	if r := harness.Run(t, "backup", "save", "--data-dir", s.DataDir, good); r.Code != 0 {
		t.Fatal(r.Err)
	}
	for _, args := range [][]string{
		{"cluster", "recover", "--from-this-member", "--yes"},
		{"backup", "restore", good},
	} {
		// Run has a time limit for a command that hangs.
		r := harness.Run(t, append(args, "--data-dir", s.DataDir)...)
		if want := fmt.Sprintf("in use by process %d, the server at %s: stop it first", s.PID(), s.URL); r.Code != 1 || !strings.Contains(r.Err, want) {
			t.Errorf("%q: %d %s; want %q", args, r.Code, r.Err, want)
		}
	}
	t.Run("SIGTERM", func(t *testing.T) { testSIGTERM(t, s.DataDir, good) })
}

// testSIGTERM terminates commands that wait forever.
func testSIGTERM(t *testing.T, data, good string) {
	archive := read(t, good)
	part := archive[:len(archive)/2]
	asks := func(args ...string) (string, []string, func(*testing.T, io.Writer, io.Reader)) {
		silent := newSilentServer(t)
		return "an answer for " + args[0], append(args, "--data-dir", silent.data), silent.waits
	}
	type waiting struct {
		name string
		args []string
		// waits returns when the command is waiting.
		waits func(t *testing.T, in io.Writer, out io.Reader)
	}
	var cases []waiting
	for _, args := range [][]string{{"backup", "save"}, {"etcd", "status"}, {"etcd", "defrag"}, {"secrets-encryption", "status"}} {
		name, args, waits := asks(args...)
		cases = append(cases, waiting{name, args, waits})
	}
	for _, c := range append(cases, []waiting{
		{"the rest of a backup", []string{"backup", "verify", "-"}, func(t *testing.T, in io.Writer, _ io.Reader) { send(t, in, part) }},
		{"the rest of a backup to restore", []string{"backup", "restore", "-", "--data-dir", t.TempDir()}, func(t *testing.T, in io.Writer, _ io.Reader) { send(t, in, part) }},
		{"a reader of the backup", []string{"backup", "save", "-", "--data-dir", data}, func(t *testing.T, _ io.Writer, out io.Reader) {
			if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		}},
	}...) {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.Command(harness.Binary(t), c.args...)
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			// The pipe stays open and full, because the test reads no more.
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			var errs bytes.Buffer
			cmd.Stderr = &errs
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			c.waits(t, in, out)
			began := time.Now()
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			go func() { ended <- cmd.Wait() }()
			select {
			case <-ended:
				t.Logf("ended %s after SIGTERM", time.Since(began))
			case <-time.After(harness.StopTimeout):
				_ = cmd.Process.Kill()
				t.Fatalf("%q does not end by SIGTERM", c.args)
			}
			if code := cmd.ProcessState.ExitCode(); code != 1 || errs.Len() == 0 {
				t.Errorf("exit code %d: %s", code, errs.String())
			}
		})
	}
}

func send(t *testing.T, in io.Writer, data []byte) {
	t.Helper()
	if _, err := in.Write(data); err != nil {
		t.Fatal(err)
	}
}

// silentServer is a data directory whose server accepts connections and does not answer.
type silentServer struct {
	data     string
	listener net.Listener
}

func newSilentServer(t *testing.T) *silentServer {
	t.Helper()
	dir, err := os.MkdirTemp("", "silent-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	lock, err := etcd.TakeLock(filepath.Join(dir, "etcd"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lock.Close() })
	for name, content := range map[string]string{
		"etcd/lock": fmt.Sprintf("unix://%s\n%d\nhttps://127.0.0.1:1\nv1\n", socket, os.Getpid()),
		"FORMAT":    "gatehouse data directory, format 1\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return &silentServer{data: dir, listener: l}
}

// waits returns when a command has connected.
func (s *silentServer) waits(t *testing.T, _ io.Writer, _ io.Reader) {
	t.Helper()
	conn, err := s.listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
}

// S31.7: a server on the data of a removed member ends, and explains how to join again.
func TestOldDataOfARemovedMember(t *testing.T) {
	speed.Long(t)
	t.Parallel()
	first, _ := begun(t, t.TempDir())
	token := newToken(t, first, 2)
	// Two of three members can remove the third while it is stopped.
	harness.Start(t, joins(first, token, newPeer(t))...)
	flags := joins(first, token, newPeer(t))
	third := harness.Start(t, flags...)
	third.Stop(t)
	if r := harness.Run(t, "cluster", "remove", state(t, third).Name, "--data-dir", first.DataDir); r.Code != 0 {
		t.Fatal(r.Err)
	}
	r := harness.Run(t, append([]string{"serve", "--data-dir", third.DataDir, "--secure-port", "0"}, flags...)...)
	if r.Code != 1 || !strings.Contains(r.Err, "empty data directory") || !strings.Contains(r.Err, "new token") || strings.Contains(r.Err, "server is stopping") {
		t.Errorf("%d: %s", r.Code, r.Err)
	}
}

// S31.22: the error about an expired member certificate names the file and the expiry, and never advises a
// recovery while other members answer.
func TestAnExpiredPeerCertificate(t *testing.T) {
	speed.Long(t)
	t.Parallel()
	authority := harness.NewAuthority(t, "peers")
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	cert, key := authority.Pair(t, "127.0.0.1")
	ca := write("ca.crt", authority.Bundle)
	certs := func(name string) []string {
		return []string{"--peer-cert-file", write(name+".crt", cert), "--peer-key-file", write(name+".key", key), "--peer-trusted-ca-file", ca}
	}
	first, _ := begun(t, t.TempDir(), certs("first")...)
	flags := joins(first, newToken(t, first, 1), newPeer(t), certs("second")...)
	second := harness.Start(t, flags...)
	// The test authority issues short-lived certificates.
	if r := harness.Run(t, "cluster", "status", "--data-dir", first.DataDir); r.Code != 0 || strings.Count(r.Out, "(--peer-cert-file) expires") != 2 {
		t.Errorf("status: %d %s%s", r.Code, r.Out, r.Err)
	}
	second.Stop(t)
	old, oldKey := authority.ExpiredPair(t, "127.0.0.1")
	file := write("second.crt", old)
	write("second.key", oldKey)
	r := harness.Run(t, append([]string{"serve", "--data-dir", second.DataDir, "--secure-port", "0"}, flags...)...)
	for _, want := range []string{file, "expired on", "replace the file", state(t, first).Address} {
		if r.Code != 1 || !strings.Contains(r.Err, want) {
			t.Errorf("%d: no %q in %s", r.Code, want, r.Err)
		}
	}
	if strings.Contains(r.Err, "recover") {
		t.Errorf("it advises a recovery: %s", r.Err)
	}
}
