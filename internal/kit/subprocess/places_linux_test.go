package subprocess

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A program finds files at paths that this machine does not have, in new directories, in a directory of the machine, and
// over one. The remaining files, the working directory and the file system of this process stay (S33.18).
func TestProgramsFindPlaces(t *testing.T) {
	dir := t.TempDir()
	p := Places{Root: filepath.Join(dir, "root")}
	if err := os.Mkdir(p.Root, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := p.Supports(); errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(p.Root); err != nil || len(entries) > 0 {
		t.Fatalf("after the attempt, the root has %v, %v", entries, err)
	}
	for name, there := range map[string]string{"new": "/gatehouse-test/a/b", "below": "/etc/gatehouse-test", "over": "/opt", "link": "/var/run/gatehouse-test"} {
		here := filepath.Join(dir, name)
		if err := os.Mkdir(here, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(here, "file"), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
		p.Here, p.There = append(p.Here, here), append(p.There, there)
	}
	p.Here, p.There = append(p.Here, filepath.Join(dir, "new/file")), append(p.There, "/gatehouse-test/single")
	var output bytes.Buffer
	script := `cat /gatehouse-test/a/b/file /etc/gatehouse-test/file /opt/file /var/run/gatehouse-test/file /gatehouse-test/single; echo; ls "$1/root"
pwd; test -s /etc/passwd && test -r /proc/self/stat && echo others; echo written >/gatehouse-test/a/b/written; id -u; grep CapEff /proc/self/status`
	started, err := p.Start([]string{"/bin/sh", "-c", script, "sh", dir}, os.Environ(), dir, &output, &output, nil)
	if err != nil {
		t.Fatal(err)
	}
	<-started.Gone
	started.Stop(0)
	lines := strings.Split(strings.TrimSpace(output.String()), "\n")
	if len(lines) != 5 || lines[0] != "newbelowoverlinknew" || lines[1] != dir || lines[2] != "others" {
		t.Errorf("it prints %q, and ends by %v", lines, started.Err)
	}
	if os.Geteuid() != 0 && len(lines) == 5 && strings.Trim(strings.TrimPrefix(lines[4], "CapEff:"), "\t0") != "" {
		t.Errorf("the program has the capabilities %s", lines[4])
	}
	if written, err := os.ReadFile(filepath.Join(dir, "new/written")); err != nil || string(written) != "written\n" {
		t.Errorf("a written file is %q, %v", written, err)
	}
	for _, there := range []string{"/gatehouse-test", "/etc/gatehouse-test", "/opt/file"} {
		if _, err := os.Lstat(there); err == nil {
			t.Errorf("this process has %s", there)
		}
	}
}

// A program that cannot be started in its file system is an error with its path.
func TestPlacesThatAreMissing(t *testing.T) {
	p := Places{Root: t.TempDir(), Here: []string{"/gatehouse-test-missing"}, There: []string{"/gatehouse-test"}}
	if _, err := p.Start([]string{"/bin/true"}, nil, "", nil, nil, nil); err == nil || !strings.Contains(err.Error(), "/bin/true") && !errors.Is(err, syscall.EPERM) {
		t.Errorf("got %v", err)
	}
}
