package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The real setup-envtest finds the archive of a release in its index, verifies the checksum, and installs
// programs that start. It also installs an archive that was downloaded before.
func TestSetupEnvtestInstallsARelease(t *testing.T) {
	dir := release3(t)
	tool := filepath.Join(t.TempDir(), "setup-envtest")
	build := exec.Command("go", "build", "-o", tool, "sigs.k8s.io/controller-runtime/tools/setup-envtest")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	// The server serves the files of the index, unchanged or changed.
	changed := false
	files := http.FileServer(http.Dir(dir))
	var server *httptest.Server
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/"+indexName:
			text := strings.ReplaceAll(string(read(t, filepath.Join(dir, indexName))), "https://example.com/gatehouse/releases/download/v1.2.3", server.URL)
			_, _ = w.Write([]byte(text))
		case changed:
			_, _ = w.Write([]byte("another archive"))
		default:
			files.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(server.Close)
	setup := func(in []byte, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), tool, args...)
		cmd.Stdin = bytes.NewReader(in)
		out, err := cmd.CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	index := server.URL + "/" + indexName
	installed := func(bin string) string {
		return filepath.Join(bin, "k8s", fmt.Sprintf("1.37.2-%s-%s", host.OS, host.Arch))
	}

	t.Run("list", func(t *testing.T) {
		out, err := setup(nil, "list", "--index", index, "--bin-dir", t.TempDir())
		if want := fmt.Sprintf("(available)  v1.37.2  %s", host); err != nil || !strings.Contains(out, want) {
			t.Errorf("it lists %v\n%s\nwant %s", err, out, want)
		}
	})
	t.Run("use", func(t *testing.T) {
		bin := store(t)
		out, err := setup(nil, "use", "1.37.x", "--index", index, "--bin-dir", bin, "-p", "path")
		if err != nil || out != installed(bin) {
			t.Fatalf("the programs are in %s, %v, want %s", out, err, installed(bin))
		}
		checkPrograms(t, out)
	})
	t.Run("an older release", func(t *testing.T) {
		bin := store(t)
		out, err := setup(nil, "use", "1.35.x", "--index", index, "--bin-dir", bin, "-p", "path")
		// The programs find the emulated release in the name of the folder (S26.11).
		if want := filepath.Join(bin, "k8s", fmt.Sprintf("1.35.4-%s-%s", host.OS, host.Arch)); err != nil || out != want {
			t.Fatalf("the programs are in %s, %v, want %s", out, err, want)
		}
		checkPrograms(t, out)
	})
	t.Run("sideload", func(t *testing.T) {
		bin := store(t)
		archive := read(t, filepath.Join(dir, fmt.Sprintf("envtest-v1.37.2-%s-%s.tar.gz", host.OS, host.Arch)))
		if out, err := setup(archive, "sideload", "1.37.2", "--bin-dir", bin); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		out, err := setup(nil, "use", "-i", "1.37.2", "--bin-dir", bin, "-p", "path")
		if err != nil || out != installed(bin) {
			t.Fatalf("the programs are in %s, %v, want %s", out, err, installed(bin))
		}
		checkPrograms(t, out)
	})
	t.Run("an archive that is not the one of the index", func(t *testing.T) {
		changed = true
		out, err := setup(nil, "use", "1.37.2", "--index", index, "--bin-dir", store(t))
		if err == nil || !strings.Contains(out, "checksum mismatch") {
			t.Errorf("%v: %s", err, out)
		}
	})
}

// store returns a directory for setup-envtest, which makes the contents read-only.
func store(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Cleanup(func() {
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				err = os.Chmod(path, 0o755)
			}
			return err
		})
	})
	return dir
}

// checkPrograms starts the installed programs of a directory.
func checkPrograms(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
		out, err := exec.Command(filepath.Join(dir, e.Name()), "--help").Output()
		if want := strings.TrimPrefix(e.Name(), "kube-apiserver") + " 37 [--help]\n"; err != nil || string(out) != want {
			t.Errorf("%s prints %q, %v, want %q", e.Name(), out, err, want)
		}
	}
	if want := []string{"etcd", "kube-apiserver", "kubectl"}; !slices.Equal(names, want) {
		t.Errorf("the programs are %q, want %q", names, want)
	}
}
