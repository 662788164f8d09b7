package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/predict/requestlog"
)

// S32.4: a log file is followed while it grows, is put aside, and is cut.
func TestALogFileIsFollowed(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.log")
	var got []string
	f := &follower{path: path, take: func(event []byte, source string) {
		if source != path {
			t.Errorf("an event of %s", source)
		}
		got = append(got, strings.TrimSpace(string(event)))
	}}
	first := true
	want := func(lines ...string) {
		t.Helper()
		err := f.advance(t.Context(), first)
		first = false
		if err != nil {
			t.Error(err)
		}
		if !slices.Equal(got, lines) {
			t.Errorf("got %.200q, want %.200q", got, lines)
		}
		got = nil
	}
	write := func(text string) {
		t.Helper()
		out, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		if _, err := out.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.advance(t.Context(), true); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a file that is missing: %v", err)
	}
	first = false
	write("one\ntwo\n")
	want("one", "two")
	want()
	write("thr")
	want()
	write("ee\n\nfour\n")
	want("three", "four")
	// It is put aside, and its writer writes to it once more.
	old, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	want()
	if _, err := old.WriteString("five\n"); err != nil {
		t.Fatal(err)
	}
	write("six\n")
	want("five", "six")
	// It is cut, as by copytruncate.
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	write("7\n")
	want("7")
	write(strings.Repeat("x", requestlog.MaxLine+1))
	want()
	write("more\neight\n")
	want("eight")
	f.file.Close()
}

// S32.4: of a log that is there at the start, only the end is read.
func TestTheEndOfALogIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	line := strings.Repeat("x", 1<<20)
	var b strings.Builder
	for i := range 40 {
		fmt.Fprintf(&b, "%d %s\n", i, line)
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	n, last := 0, ""
	f := &follower{path: path, take: func(event []byte, _ string) {
		number, rest, _ := strings.Cut(string(event), " ")
		if n, last = n+1, number; rest != line+"\n" {
			t.Errorf("line %s has %d bytes", number, len(rest))
		}
	}}
	if err := f.advance(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	defer f.file.Close()
	if n < 14 || n > 16 || last != "39" {
		t.Errorf("%d lines were read, the last is %s", n, last)
	}
}
