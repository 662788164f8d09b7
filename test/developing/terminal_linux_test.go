package developing

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/terminaltest"
)

// On a terminal, a request is one line that fits, keys restart the program and explain the last rejection,
// and Ctrl-C ends the command and restores the terminal, whatever standard input is.
func TestKeys(t *testing.T) {
	terminal, screen := terminaltest.Open(t)
	if err := unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}); err != nil {
		t.Fatal(err)
	}
	before, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	s := &session{t: t, temporary: t.TempDir(), ended: make(chan error, 1)}
	s.kubeconfig = filepath.Join(s.temporary, "kubeconfig")
	s.cmd = exec.Command(harness.Binary(t), "dev", "-f", "-", "--kubeconfig-out", s.kubeconfig, "--webhook-port", harness.FreePort(t), "--watch", "*.nothing", "--", os.Args[0])
	s.cmd.Dir, s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = t.TempDir(), strings.NewReader(manifest("")), terminal, terminal
	s.cmd.Env = append(os.Environ(), "TMPDIR="+s.temporary, behaviour+"=right", "TERM=xterm", "NO_COLOR=1")
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 1}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { s.ended <- s.cmd.Wait() }()
	t.Cleanup(func() { _ = s.cmd.Process.Kill() })
	go func() {
		for lines := bufio.NewScanner(screen); lines.Scan(); {
			_, _ = s.out.Write(append(lines.Bytes(), '\n'))
		}
	}()
	press := func(key string) {
		t.Helper()
		if _, err := screen.WriteString(key); err != nil {
			t.Fatal(err)
		}
	}
	client := s.ready()
	s.says("keys +r restarts, e explains")
	press("e")
	s.says(`No request was rejected yet\.`)
	if err := create(t.Context(), client, "forbidden:1"); err == nil {
		t.Error("it was not rejected")
	}
	s.says(`(?m)rejected CREATE pods web-.*…\r?$`)
	for line := range strings.Lines(s.out.String()) {
		if text := strings.TrimSpace(line); strings.Contains(text, " CREATE ") && len([]rune(text)) > 80 {
			t.Errorf("%q is too long", text)
		}
	}
	press("e")
	s.says(`ValidatingAdmissionWebhook`)
	press("r")
	s.says(`The new program serves, after`)
	press("\x03")
	select {
	case err := <-s.ended:
		if err != nil {
			t.Errorf("it ended with %v:\n%s", err, &s.out)
		}
	case <-harness.Context(t).Done():
		t.Fatalf("it does not end:\n%s", &s.out)
	}
	s.leftNothing()
	if after, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS); err != nil || *after != *before {
		t.Errorf("the terminal is another one: %v, %v", after, err)
	}
}
