package subprocess

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A program finds files at paths that this machine does not have, in new directories, in a directory of the machine, and
// over one. The remaining files, also in a directory with a place and of the session, the working directory and the file
// system of this process stay (S33.18).
func TestProgramsFindPlaces(t *testing.T) {
	dir := t.TempDir()
	p := Places{Root: filepath.Join(dir, "root")}
	if err := os.Mkdir(p.Root, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := p.Supports("/"); errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(p.Root); err != nil || len(entries) > 0 {
		t.Fatalf("after the attempt, the root has %v, %v", entries, err)
	}
	// /tmp may have the files of the session.
	beside, err := os.MkdirTemp("/tmp", "gatehouse-test-*")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(beside) })
	temporary := beside + "-place"
	mode, err := exec.Command("stat", "-c", "%a", "/tmp").Output()
	if err != nil {
		t.Fatal(err)
	}
	for name, there := range map[string]string{"new": "/gatehouse-test/a/b", "below": "/etc/gatehouse-test", "over": "/opt", "link": "/var/run/gatehouse-test", "temporary": temporary + "/certs"} {
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
	script := `cat /gatehouse-test/a/b/file /etc/gatehouse-test/file /opt/file /var/run/gatehouse-test/file /gatehouse-test/single "$2-place/certs/file"; echo; ls "$1/root"
touch "$2/written" "$2-new"; stat -c %a /tmp; ls -d "$2"; pwd; test -s /etc/passwd && test -r /proc/self/stat && echo others; echo written >/gatehouse-test/a/b/written; id -u; grep CapEff /proc/self/status`
	started, err := p.Start([]string{"/bin/sh", "-c", script, "sh", dir, beside}, os.Environ(), dir, &output, &output, nil)
	if err != nil {
		t.Fatal(err)
	}
	<-started.Gone
	started.Stop(0)
	lines := strings.Split(strings.TrimSpace(output.String()), "\n")
	if len(lines) != 7 || lines[0] != "newbelowoverlinknewtemporary" || lines[1] != strings.TrimSpace(string(mode)) || lines[2] != beside || lines[3] != dir || lines[4] != "others" {
		t.Fatalf("it prints %q, and ends by %v", lines, started.Err)
	}
	if os.Geteuid() != 0 && strings.Trim(strings.TrimPrefix(lines[6], "CapEff:"), "\t0") != "" {
		t.Errorf("the program has the capabilities %s", lines[6])
	}
	if _, err := os.Stat(filepath.Join(beside, "written")); err != nil {
		t.Errorf("a file in another directory of /tmp: %v", err)
	}
	if written, err := os.ReadFile(filepath.Join(dir, "new/written")); err != nil || string(written) != "written\n" {
		t.Errorf("a written file is %q, %v", written, err)
	}
	for _, there := range []string{"/gatehouse-test", "/etc/gatehouse-test", "/opt/file", temporary, beside + "-new"} {
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
