package terminal

import (
	"io"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/terminaltest"
)

// Each progress text overwrites the one before.
func TestProgressIsOneLine(t *testing.T) {
	terminal, screen := terminaltest.Open(t)
	p := NewProgress(terminal, "a long text", 0)
	next := func(want string) {
		t.Helper()
		got := make([]byte, len(want))
		if _, err := io.ReadFull(screen, got); err != nil || string(got) != want {
			t.Fatalf("got %q, want %q, %v", got, want, err)
		}
	}
	next("\ra long text")
	p.Set("short")
	for {
		got := make([]byte, len("\ra long text"))
		if _, err := io.ReadFull(screen, got); err != nil {
			t.Fatal(err)
		}
		if string(got) == "\rshort      " {
			break
		}
	}
	p.End()
	p.End()
	terminal.Close()
	rest, _ := io.ReadAll(screen)
	if !strings.HasSuffix(string(rest), "\r           \r") {
		t.Errorf("at the end: %q", rest)
	}
}
