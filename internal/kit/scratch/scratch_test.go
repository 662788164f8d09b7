package scratch

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

// gone returns the id of a process that has ended.
func gone(t *testing.T) int {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func TestDirectoriesDoNotOutliveTheirOwner(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	dead := gone(t)
	// left makes a directory as a killed process leaves it behind.
	left := func(name string, owner int) string {
		t.Helper()
		dir := filepath.Join(os.TempDir(), name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if owner != 0 {
			if err := os.WriteFile(filepath.Join(dir, mark), []byte(strconv.Itoa(owner)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	for _, tc := range []struct {
		name, dir string
		owner     int
		kept      bool
	}{
		{"of a server that was killed", own + "1", dead, false},
		{"of a suite that was killed with its server", suites + "1", dead, false},
		{"of a suite that killed its server", suites + "2", os.Getpid(), true},
		{"of another program's suite", suites + "3", 0, true},
		{"of something else", "other-1", dead, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := left(tc.dir, tc.owner)
			mine, err := New()
			if err != nil {
				t.Fatal(err)
			}
			if exists(dir) != tc.kept {
				t.Errorf("kept: %t, want %t", exists(dir), tc.kept)
			}
			if !exists(mine.Path()) {
				t.Error("its own directory is gone")
			}
			mine.Remove()
			if exists(mine.Path()) {
				t.Error("its own directory stays")
			}
		})
	}
}

func TestADirectoryIsNobodyElsesWhileItsProcessLives(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	dir, err := os.MkdirTemp("", suites)
	if err != nil {
		t.Fatal(err)
	}
	d, err := Adopt(dir, gone(t))
	if err != nil || d == nil {
		t.Fatal(d, err)
	}
	Sweep()
	if !exists(dir) {
		t.Fatal("another process removed it")
	}
	d.Release()
	Sweep()
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("its owner finds %v, %v", entries, err)
	}
}

func TestOnlyTemporaryDirectoriesOfSuitesAreTaken(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for _, dir := range []string{filepath.Join(os.TempDir(), "mine"), filepath.Join(os.TempDir(), "deeper", suites+"1")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if d, err := Adopt(dir, 1); d != nil || err != nil {
			t.Errorf("%s: %v, %v", dir, d, err)
		}
	}
}

// The remains of an interrupted removal are removed by the next process.
func TestTheMarkIsRemovedLast(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{".a", mark, "z"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var removed []string
	remove(dir, func(path string) error {
		removed = append(removed, filepath.Base(path))
		return nil
	})
	if want := []string{".a", "z", filepath.Base(dir)}; !slices.Equal(removed, want) {
		t.Errorf("removed %v, want %v", removed, want)
	}
}
