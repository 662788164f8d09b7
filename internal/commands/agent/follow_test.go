package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/requestlog"
)

// S32.4: a log file is followed while it grows, is rotated, and is truncated.
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
	// The file is rotated, and its writer writes to the old file once more.
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
	// The file is truncated, as by copytruncate.
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

// S32.4: a log that is truncated and has grown beyond its old size before the next poll is read from its beginning,
// whether the truncation is detected before or after the read.
func TestATruncatedLogIsReadFromItsBeginning(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	var got []string
	f := &follower{path: path, take: func(event []byte, _ string) { got = append(got, strings.TrimSpace(string(event))) }}
	write := func(flag int, from, to int) {
		t.Helper()
		out, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|flag, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		for i := from; i < to; i++ {
			if _, err := fmt.Fprintf(out, "event %06d of the audit log\n", i); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			if line := fmt.Sprintf("event %06d of the audit log", i); !slices.Contains(got, line) {
				t.Fatalf("%q is missing among %d lines", line, len(got))
			}
		}
		got = nil
	}
	write(os.O_APPEND, 0, 50)
	if err := f.advance(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	defer func() { f.file.Close() }()
	want(0, 50)
	for _, n := range []int{50, 51, 200, 10_000} {
		write(os.O_TRUNC, 1000, 1000+n)
		if err := f.advance(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		want(1000, 1000+n)
		write(os.O_TRUNC, 0, n)
		if err := f.advance(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		want(0, n)
	}
	// The file is truncated during the read.
	take := f.take
	f.take = func(event []byte, source string) {
		if take(event, source); strings.Contains(string(event), " 010000 ") {
			write(os.O_TRUNC, 20_000, 31_000)
		}
	}
	write(os.O_APPEND, 10_000, 10_001)
	if err := f.advance(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	want(20_000, 31_000)
	if f.read != int64(11_000*len("event 000000 of the audit log\n")) {
		t.Errorf("%d bytes are read", f.read)
	}
}

// S32.4: a named pipe in place of a log does not block the shutdown, and the agent is not ready meanwhile.
func TestANamedPipeIsNotFollowed(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.log")
	if err := os.WriteFile(path, []byte("one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	events := make(chan string, 10)
	a := &Agent{followers: []*follower{{path: path, take: func(event []byte, _ string) { events <- string(event) }}}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		a.followers[0].run(ctx)
	}()
	if got := <-events; got != "one\n" || a.checkFollowed(nil) != nil {
		t.Errorf("%q, %v", got, a.checkFollowed(nil))
	}
	pipe := filepath.Join(dir, "pipe")
	if err := errors.Join(syscall.Mkfifo(pipe, 0o600), os.Rename(pipe, path)); err != nil {
		t.Fatal(err)
	}
	tick, late := time.NewTicker(time.Millisecond), time.After(time.Minute)
	defer tick.Stop()
	for a.checkFollowed(nil) == nil {
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("the agent is ready though its log is a named pipe")
		}
	}
	if err := a.checkFollowed(nil); !strings.Contains(err.Error(), path+": is a named pipe") {
		t.Error(err)
	}
	if err := errors.Join(os.WriteFile(pipe, []byte("two\n"), 0o600), os.Rename(pipe, path)); err != nil {
		t.Fatal(err)
	}
	if got := <-events; got != "two\n" {
		t.Errorf("got %q", got)
	}
	if err := errors.Join(syscall.Mkfifo(pipe, 0o600), os.Rename(pipe, path)); err != nil {
		t.Fatal(err)
	}
	cancel()
	<-ended
	if _, err := New(Options{Credentials: credentials(t), Follow: []string{path}}); err == nil || !strings.Contains(err.Error(), "--follow: open "+path+": is a named pipe") {
		t.Errorf("the agent starts with a named pipe: %v", err)
	}
}

// credentials returns a directory with the credentials of an Agent.
func credentials(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "credentials")
	if _, err := EnsureCredentials(dir, Service{"watch", "agent"}); err != nil {
		t.Fatal(err)
	}
	return dir
}

// S32.4: only the end of a log that exists at the start is read.
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
