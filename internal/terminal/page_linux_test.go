package terminal

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// openTerminal returns a terminal and what is on the other side of it.
func openTerminal(t *testing.T) (terminal, screen *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("this machine gives no terminal: %v", err)
	}
	t.Cleanup(func() { screen.Close() })
	if err := unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(screen.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err = os.OpenFile(filepath.Join("/dev/pts", strconv.Itoa(number)), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("this machine gives no terminal: %v", err)
	}
	t.Cleanup(func() { terminal.Close() })
	return terminal, screen
}

// What is shown is written over what was shown before.
func TestProgressIsOneLine(t *testing.T) {
	terminal, screen := openTerminal(t)
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
