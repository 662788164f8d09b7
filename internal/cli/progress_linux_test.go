package cli

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/terminal/terminaltest"
)

// A check that takes long shows how far it is, on a terminal only, and leaves the line empty.
func TestCheckShowsItsProgress(t *testing.T) {
	defer func(before time.Duration) { progressAfter = before }(progressAfter)
	progressAfter = 0
	file := filepath.Join(t.TempDir(), "a.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(errs io.Writer) {
		t.Helper()
		var out bytes.Buffer
		code := Main(t.Context(), []string{"check", file}, Streams{In: strings.NewReader(""), Out: &out, Err: errs})
		if want := "1 object in 1 file: 1 accepted"; code != exitOK || !strings.HasPrefix(out.String(), want) {
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
