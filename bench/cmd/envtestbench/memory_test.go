package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	const rest = " S 12 10 10 0 -1 4194560 1 2 3 4 150 50 7"
	for _, tc := range []struct {
		text, name string
		ok         bool
	}{
		{"99 (etcd)" + rest, "etcd", true},
		{"99 (a (b) c)" + rest, "a (b) c", true},
		{"99 (etcd) S 12", "", false},
		{"99 (etcd) S x 10 10 0 -1 4194560 1 2 3 4 150 50 7", "", false},
		{"", "", false},
	} {
		s, ok := parseStat(tc.text)
		if want := (stat{tc.name, 12, 2 * time.Second}); ok != tc.ok || ok && s != want {
			t.Errorf("%q: %+v, %v", tc.text, s, ok)
		}
	}
}

// Only programs that the process has started count, and pages that they share count once.
func TestUsed(t *testing.T) {
	proc := t.TempDir()
	for pid, name := range map[int]string{1: "kube-apiserver", 2: "etcd", 3: "kubectl"} {
		dir := filepath.Join(proc, fmt.Sprint(pid))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for file, text := range map[string]string{
			"stat":         fmt.Sprintf("%d (%s) S 12 10 10 0 -1 4194560 1 2 3 4 %d 0 7\n", pid, name, 100*pid),
			"smaps_rollup": "00400000-7ffd000 ---p 00000000 00:00 0    [rollup]\nRss:  812 kB\nPss:    400 kB\nPss_Anon: 100 kB\nPss_Dirty: 3 kB\n",
		} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got, want := used(proc, 12), (usage{800 << 10, 200 << 10, 3 * time.Second}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := used(proc, 13); got != (usage{}) {
		t.Errorf("another process's programs count: %+v", got)
	}
}

// A copy has its own memory, and all names of a program share it.
func TestCopyPrograms(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	outside := filepath.Join(t.TempDir(), "etcd")
	if err := os.WriteFile(outside, []byte("etcd"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(from, "kube-apiserver"), []byte("program"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"kubectl": "kube-apiserver", "etcd": outside} {
		if err := os.Symlink(target, filepath.Join(from, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := copyPrograms(from, to); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]struct {
		content string
		link    bool
	}{"kube-apiserver": {"program", false}, "kubectl": {"program", true}, "etcd": {"etcd", false}} {
		data, err := os.ReadFile(filepath.Join(to, name))
		_, linkErr := os.Readlink(filepath.Join(to, name))
		if err != nil || string(data) != want.content || (linkErr == nil) != want.link {
			t.Errorf("%s: %q, a link: %v, %v", name, data, linkErr == nil, err)
		}
	}
}
