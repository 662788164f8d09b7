package etcd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/kit/datalock"
)

// The lock file of a process that has a directory gives the endpoint of its etcd, or the reason why
// the endpoint is unknown.
func TestTheLockSaysWhoHasTheData(t *testing.T) {
	for name, c := range map[string]struct{ written, endpoint, refused string }{
		"a server that serves":                  {"unix:///s\n1\nhttps://h:1\nv1.2.3\n", "unix:///s", ""},
		"one that writes more than is known":    {"unix:///s\n1\nhttps://h:1\nv9.0.0\nmore\n", "unix:///s", ""},
		"one of a version that wrote two lines": {"unix:///s\n1\n", "unix:///s", ""},
		"one that starts":                       {"\n1\n\nv1.2.3\n", "", `a server of version "v1.2.3" that does not serve yet`},
		"one that writes other lines":           {"\n1\n", "", "a server of an older version"},
		"one of a version that wrote nothing":   {"", "", "a server of an older version, whose own program works on its data"},
		"a command":                             {"\n1\n\n\n", "", "in use by process 1"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			lock, err := TakeLock(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer lock.Close()
			if err := os.WriteFile(filepath.Join(dir, datalock.File), []byte(c.written), 0o600); err != nil {
				t.Fatal(err)
			}
			endpoint, err := Running(dir)
			if endpoint != c.endpoint {
				t.Errorf("the endpoint is %q, want %q", endpoint, c.endpoint)
			}
			if c.refused == "" && err != nil || c.refused != "" && (!errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), c.refused)) {
				t.Errorf("%v; want %q", err, c.refused)
			}
		})
	}
}

// S31.20: the error about data that another process has names the process.
func TestTheErrorNamesTheProcessThatHasTheData(t *testing.T) {
	for name, c := range map[string]struct{ written, want string }{
		"a server":                     {"unix:///s\n12\nhttps://h:1\nv1.2.3\n", "is in use by process 12, the server at https://h:1"},
		"a server that starts":         {"\n12\n\nv1.2.3\n", `is in use by process 12, a server of version "v1.2.3" that does not serve yet`},
		"a command":                    {"\n12\n\n\n", "is in use by process 12"},
		"an old program":               {"", "is in use by another process"},
		"lines that no program writes": {"\nno number\n\n\n", "is in use by another process"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			lock, err := TakeLock(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer lock.Close()
			if err := os.WriteFile(filepath.Join(dir, datalock.File), []byte(c.written), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, open := range []func() error{
				func() error { _, err := TakeLock(dir); return err },
				func() error { _, err := Start(t.Context(), Options{Dir: dir}); return err },
			} {
				if err := open(); !errors.Is(err, ErrInUse) || !strings.HasSuffix(err.Error(), dir+" "+c.want) {
					t.Errorf("%v; want %q", err, c.want)
				}
			}
		})
	}
}

// A process has its number in the file as soon as it has the lock.
func TestACommandWritesItsProcess(t *testing.T) {
	dir := t.TempDir()
	lock, err := TakeLock(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if _, err := TakeLock(dir); err == nil || !strings.HasSuffix(err.Error(), fmt.Sprintf("by process %d", os.Getpid())) {
		t.Error(err)
	}
}

// A server writes its version as soon as it has the data, and the rest when it serves.
func TestAServerWritesWhatItOffers(t *testing.T) {
	s, err := Start(t.Context(), Options{Dir: t.TempDir(), Version: "v1.2.3"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Serves("https://h:1"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(s.dir, datalock.File))
	if lines := strings.Split(string(text), "\n"); err != nil || len(lines) != 5 || lines[0] != s.Endpoint() || lines[2] != "https://h:1" || lines[3] != "v1.2.3" {
		t.Errorf("%q, %v", text, err)
	}
}
