package files

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// odd creates a file of each type that is refused, and returns their paths with the expected
// errors.
func odd(t *testing.T) map[string]string {
	t.Helper()
	// The path of a socket must be short.
	dir, err := os.MkdirTemp("", "odd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := syscall.Mkfifo(at("pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	socket, err := net.Listen("unix", at("socket"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	if err := os.WriteFile(at("large"), make([]byte, 101), 0o600); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"zero": "/dev/zero", "pipelink": at("pipe"), "twice": at("zero")} {
		if err := os.Symlink(to, at(link)); err != nil {
			t.Fatal(err)
		}
	}
	return map[string]string{
		at("pipe"):     "open " + at("pipe") + ": is a named pipe: only regular files are read",
		at("pipelink"): "open " + at("pipelink") + ": is a link to a named pipe: only regular files are read",
		at("socket"):   "open " + at("socket") + ": is a socket: only regular files are read",
		at("zero"):     "open " + at("zero") + ": is a link to a device: only regular files are read",
		at("twice"):    "open " + at("twice") + ": is a link to a device: only regular files are read",
		"/dev/zero":    "open /dev/zero: is a device: only regular files are read",
		at("large"):    "read " + at("large") + ": has more than 100 bytes",
	}
}

func TestOddFilesAreRefused(t *testing.T) {
	for path, want := range odd(t) {
		for name, do := range map[string]func() error{
			"Read":          func() error { _, err := Read(path, 100); return err },
			"ReadArgument":  func() error { _, err := ReadArgument(path, 100); return err },
			"Check":         func() error { return Check(path, 100) },
			"CheckArgument": func() error { return CheckArgument(path, 100) },
			"Open": func() error {
				f, err := Open(path)
				if err == nil {
					f.Close()
					// Any size is accepted.
					return Check(path, 100)
				}
				return err
			},
		} {
			if err := do(); err == nil || err.Error() != want || !errors.As(err, new(Refused)) {
				t.Errorf("%s: got %v\nwant %s", name, err, want)
			}
		}
	}
}

func TestWhatIsMissingIsAnErrorOfTheFileSystem(t *testing.T) {
	dir := t.TempDir()
	_, err := Read(filepath.Join(dir, "none"), 100)
	if want := "open " + filepath.Join(dir, "none") + ": no such file or directory"; !errors.Is(err, fs.ErrNotExist) || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
	if _, err = Read(dir, 100); !errors.Is(err, syscall.EISDIR) || errors.As(err, new(Refused)) {
		t.Errorf("a directory: %v", err)
	}
}

func TestFilesAreRead(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	content := strings.Repeat("x", 100)
	if err := errors.Join(os.WriteFile(file, []byte(content), 0o600), os.Symlink("file", link)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, link} {
		got, err := Read(path, 100)
		if err != nil || string(got) != content {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
	if _, err := ReadFrom(strings.NewReader(content+"x"), 100); err == nil || err.Error() != "has more than 100 bytes" {
		t.Errorf("a stream: %v", err)
	}
	if got, err := ReadArgument(os.DevNull, 100); err != nil || len(got) > 0 {
		t.Errorf("the null device: %q, %v", got, err)
	}
	// A shell passes the output of a command by the name of an open pipe.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.WriteString("from a command"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	defer r.Close()
	if got, err := ReadArgument("/dev/fd/"+strconv.Itoa(int(r.Fd())), 100); err != nil || string(got) != "from a command" {
		t.Errorf("an open pipe: %q, %v", got, err)
	}
}

func TestReplace(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(
		os.WriteFile(at("file"), []byte("old"), 0o644), os.Symlink("file", at("link")), os.Symlink("missing", at("dangling")),
		os.Symlink("loop", at("loop")), os.Symlink(os.DevNull, at("null")), syscall.Mkfifo(at("pipe"), 0o600), os.Mkdir(at("dir"), 0o700),
	); err != nil {
		t.Fatal(err)
	}
	kinds := func() map[string]fs.FileMode {
		all := map[string]fs.FileMode{}
		for _, name := range []string{"file", "link", "dangling", "loop", "null", "pipe", "dir"} {
			info, err := os.Lstat(at(name))
			if err != nil {
				t.Fatal(err)
			}
			all[name] = info.Mode().Type()
		}
		return all
	}
	before := kinds()
	for _, tt := range []struct{ path, file string }{
		{"new", "new"}, {"file", "file"}, {"link", "file"}, {"dangling", "missing"}, {"null", ""},
	} {
		if err := Replace(at(tt.path), []byte(tt.path), 0o600, true); err != nil {
			t.Errorf("%s: %v", tt.path, err)
			continue
		}
		if tt.file == "" {
			continue
		}
		got, err := os.ReadFile(at(tt.file))
		if info, _ := os.Stat(at(tt.file)); err != nil || string(got) != tt.path || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %s has %q, %v, %v", tt.path, tt.file, got, info.Mode(), err)
		}
	}
	for _, name := range []string{"pipe", "dir", "loop", "none/file"} {
		if err := Replace(at(name), []byte(name), 0o600, false); err == nil {
			t.Errorf("%s was written", name)
		}
	}
	for name, kind := range kinds() {
		if kind != before[name] {
			t.Errorf("%s was %v and is %v", name, before[name], kind)
		}
	}
	if left, _ := filepath.Glob(at(".*-*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// Replace does not write through a link or a pipe of another user.
func TestNothingIsWrittenThroughTheLinksOfOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make links of another user")
	}
	const other = 4711
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(
		os.WriteFile(at("target"), []byte("old"), 0o644), os.Symlink("target", at("link")), os.Symlink("missing", at("dangling")),
		os.Symlink(os.DevNull, at("null")), os.Symlink("link", at("own")), syscall.Mkfifo(at("pipe"), 0o600),
		os.Lchown(at("link"), other, other), os.Lchown(at("dangling"), other, other), os.Lchown(at("null"), other, other), os.Lchown(at("pipe"), other, other),
	); err != nil {
		t.Fatal(err)
	}
	// Without a reader, opening the pipe for writing would fail anyway.
	reader, err := os.OpenFile(at("pipe"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for _, name := range []string{"link", "dangling", "null", "own", "pipe"} {
		if err := Replace(at(name), []byte("secret"), 0o600, false); err == nil || !strings.Contains(err.Error(), "another user") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got, err := os.ReadFile(at("target")); err != nil || string(got) != "old" {
		t.Errorf("the target has %q, %v", got, err)
	}
	if _, err := os.Lstat(at("missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the target of the dangling link is there: %v", err)
	}
}

func TestErrorsAreShort(t *testing.T) {
	short := errors.New("short")
	if Shorten(short) != short || Shorten(nil) != nil {
		t.Error("a short error has changed")
	}
	long := errors.New("begin " + strings.Repeat("ä", 1<<20) + " end")
	err := Shorten(long)
	if text := err.Error(); len(text) > longest+100 || !strings.HasPrefix(text, "begin ä") || !strings.HasSuffix(text, "ä end") || !strings.Contains(text, "bytes left out") {
		t.Errorf("%d bytes: %.100s", len(text), text)
	}
	if !errors.Is(err, long) {
		t.Error("the cause is lost")
	}
}
