package cli

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/test/terminaltest"
)

// Commands that read a cluster or many files show their progress, only on a terminal.
func TestCommandsShowTheirProgress(t *testing.T) {
	defer func(before time.Duration) { command.ProgressAfter = before }(command.ProgressAfter)
	command.ProgressAfter = 0
	address := clusterOfTests(t)
	file := filepath.Join(t.TempDir(), "a.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"lint", "--kubeconfig", address.Kubeconfig},
		{"snapshot", "-o", "-", "--kubeconfig", address.Kubeconfig},
		{"explain", "-f", file, "--kubeconfig", address.Kubeconfig},
	} {
		terminal, screen := terminaltest.Open(t)
		read := make(chan string, 1)
		go func() {
			seen, _ := io.ReadAll(screen)
			read <- string(seen)
		}()
		var out, plain bytes.Buffer
		code := Main(t.Context(), args, command.Streams{In: strings.NewReader(""), Out: &out, Err: terminal})
		terminal.Close()
		if seen := <-read; code != command.ExitOK || !strings.HasPrefix(seen, "\rRead") || !strings.HasSuffix(seen, " \r") || out.Len() == 0 {
			t.Errorf("%q: exit %d, the terminal got %q", args, code, seen)
		}
		if code := Main(t.Context(), args, command.Streams{In: strings.NewReader(""), Out: &out, Err: &plain}); code != command.ExitOK || plain.Len() > 0 {
			t.Errorf("%q: exit %d, without a terminal there is %q", args, code, plain.String())
		}
	}
}

// A slow check shows its progress, only on a terminal, and clears the line at the end.
func TestCheckShowsItsProgress(t *testing.T) {
	defer func(before time.Duration) { command.ProgressAfter = before }(command.ProgressAfter)
	command.ProgressAfter = 0
	file := filepath.Join(t.TempDir(), "a.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(errs io.Writer) {
		t.Helper()
		var out bytes.Buffer
		code := Main(t.Context(), []string{"check", file}, command.Streams{In: strings.NewReader(""), Out: &out, Err: errs})
		if want := "1 object in 1 file: 1 accepted"; code != command.ExitOK || !strings.HasPrefix(out.String(), want) {
			t.Errorf("exit %d, %q", code, out.String())
		}
	}
	terminal, screen := terminaltest.Open(t)
	read := make(chan string, 1)
	go func() {
		seen, _ := io.ReadAll(screen)
		read <- string(seen)
	}()
	run(terminal)
	terminal.Close()
	seen := <-read
	if !strings.HasPrefix(seen, "\rReading ") && !strings.HasPrefix(seen, "\rStarting a server") || !strings.HasSuffix(seen, " \r") {
		t.Errorf("the terminal got %q", seen)
	}
	var plain bytes.Buffer
	run(&plain)
	file2, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file2.Close()
	run(file2)
	if info, err := file2.Stat(); err != nil || info.Size() > 0 || plain.Len() > 0 {
		t.Errorf("without a terminal, there is %q, %v, %v", plain.String(), info, err)
	}
}

// A run of tests shows its progress and colours its results, both only on a terminal. NO_COLOR disables the
// colours (S24.16).
func TestTestsShowProgressAndColour(t *testing.T) {
	defer func(before time.Duration) { command.ProgressAfter = before }(command.ProgressAfter)
	command.ProgressAfter = 0
	t.Setenv("TERM", "xterm")
	dir := t.TempDir()
	text := "apiVersion: gatehouse.dev/v1alpha1\nkind: AdmissionTests\nworld: []\ntests:\n" +
		"- {name: good, request: {object: {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}}, expect: {allowed: true}}\n" +
		"- {name: bad, request: {object: {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}}, expect: {allowed: false}}\n"
	if err := os.WriteFile(filepath.Join(dir, "tests.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(noColour string) (out, errs string) {
		t.Helper()
		t.Setenv("NO_COLOR", noColour)
		outTerminal, outScreen := terminaltest.Open(t)
		errTerminal, errScreen := terminaltest.Open(t)
		read := func(from io.Reader, into chan<- string) {
			seen, _ := io.ReadAll(from)
			into <- string(seen)
		}
		outs, errors := make(chan string, 1), make(chan string, 1)
		go read(outScreen, outs)
		go read(errScreen, errors)
		if code := Main(t.Context(), []string{"test", dir, "-v", "1"}, command.Streams{In: strings.NewReader(""), Out: outTerminal, Err: errTerminal}); code != command.ExitError {
			t.Errorf("exit %d", code)
		}
		outTerminal.Close()
		errTerminal.Close()
		return <-outs, <-errors
	}
	out, errs := run("")
	for _, want := range []string{"\x1b[32mpass\x1b[0m  ", "\x1b[31mFAIL\x1b[0m  "} {
		if !strings.Contains(out, want) {
			t.Errorf("the terminal does not have %q: %q", want, out)
		}
	}
	if !strings.Contains(errs, "Starting a server") {
		t.Errorf("there is no progress: %q", errs)
	}
	out, _ = run("1")
	if strings.Contains(out, "\x1b") || !strings.Contains(out, "FAIL  ") {
		t.Errorf("with NO_COLOR, the terminal has %q", out)
	}
}
