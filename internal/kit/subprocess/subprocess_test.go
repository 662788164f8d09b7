package subprocess

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// away is a shell command that runs a script in a session of its own, without an environment.
func away(script string) string { return "setsid env -i sh -c '" + script + "'" }

// A program ends with its descendants, even if both ignore SIGTERM, and on Linux even if a descendant has left the
// process group of the program and has another parent and environment (S33.8).
func TestAProgramEndsWithAllThatItStarted(t *testing.T) {
	for name, script := range map[string]string{
		"at once":          "sleep 1000 & echo $!; wait",
		"away":             away(`trap "" TERM; echo $$; while :; do sleep 1000; done`) + " & wait",
		"adopted":          away("sleep 1000 & echo $!") + " & wait; sleep 1000",
		"after it":         "(" + away("echo $$; exec sleep 1000") + " &) | { read line; echo $line; }; exit 1",
		"by force":         "trap '' TERM; (trap '' TERM; while :; do sleep 1000; done) & echo $!; while :; do wait; done",
		"by force, others": "trap '' TERM; " + away(`trap "" TERM; echo $$; while :; do sleep 1000; done`) + " & while :; do wait; done",
	} {
		t.Run(name, func(t *testing.T) {
			if runtime.GOOS != "linux" && strings.Contains(script, "setsid") {
				t.Skip("only Linux gives orphans to an ancestor")
			}
			read, write, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer read.Close()
			running := map[int]bool{}
			p, err := Start([]string{"/bin/sh", "-c", script}, os.Environ(), "", write, write, func(group int, runs bool) { running[group] = runs })
			write.Close()
			if err != nil {
				t.Fatal(err)
			}
			child := number(t, read)
			p.Stop(100 * time.Millisecond)
			awaitEnd(t, child)
			if len(running) != 1 || p.State() == "" || p.Err == nil {
				t.Errorf("groups %v, state %q, error %v", running, p.State(), p.Err)
			}
			for group, runs := range running {
				if runs {
					t.Errorf("group %d is said to run", group)
				}
			}
		})
	}
}

// owner is the environment variable of a process that starts the program in its value, and is then killed.
const owner = "SUBPROCESS_TEST_OWNER"

func TestMain(m *testing.M) {
	if script := os.Getenv(owner); script != "" {
		if _, err := Start([]string{"/bin/sh", "-c", script}, nil, "", os.Stdout, os.Stderr, nil); err != nil {
			panic(err)
		}
		select {}
	}
	os.Exit(m.Run())
}

// A program ends with its descendants when the process that started it is killed (S33.8).
func TestAProgramEndsWithAKilledOwner(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("other systems have no signal for it")
	}
	for name, script := range map[string]string{
		"the program": "echo $$; exec sleep 1000",
		"away":        away("sleep 1000 & echo $!") + " & wait; sleep 1000",
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0])
			cmd.Env, cmd.Stderr = append(os.Environ(), owner+"="+script), os.Stderr
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			child := number(t, out)
			_ = cmd.Process.Kill()
			awaitEnd(t, child)
			_ = cmd.Wait()
		})
	}
}

// Start returns the error of a program that cannot be run, and State the reason for the end of another one.
func TestStartsAndEnds(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/plain", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for program, want := range map[string]error{"./missing": fs.ErrNotExist, "./plain": fs.ErrPermission, "no-such-program": exec.ErrNotFound} {
		if _, err := Start([]string{program}, nil, dir, nil, nil, nil); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", program, err, want)
		}
	}
	for script, want := range map[string]string{"exit 0": "exit status 0", "exit 3": "exit status 3", "kill -s ABRT $$": "signal: aborted"} {
		p, err := Start([]string{"/bin/sh", "-c", script}, nil, "", nil, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		<-p.Gone
		if got := strings.TrimSuffix(p.State(), " (core dumped)"); got != want || (p.Err == nil) != (script == "exit 0") {
			t.Errorf("%s: %q, error %v", script, got, p.Err)
		}
	}
}

// number reads a line with a number.
func number(t *testing.T, from io.Reader) (n int) {
	t.Helper()
	if _, err := fmt.Fscanln(from, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// awaitEnd waits until a process has ended.
func awaitEnd(t *testing.T, id int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if err := syscall.Kill(id, 0); errors.Is(err, syscall.ESRCH) || zombie(id) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d, which the program started, runs on", id)
		}
	}
}

// zombie reports whether a process has ended and its parent has not waited for it.
func zombie(id int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(id) + "/stat")
	return err == nil && strings.Contains(string(stat), ") Z ")
}

func TestATailHasTheEnd(t *testing.T) {
	tail := &Tail{}
	for range 3 * mostKept / 10 {
		if _, err := tail.Write([]byte("123456789\n")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tail.Write([]byte("the end\n")); err != nil {
		t.Fatal(err)
	}
	if got := tail.String(); len(got) > mostKept || !strings.HasSuffix(got, "9\nthe end") {
		t.Errorf("%d bytes: %q", len(got), got[max(0, len(got)-20):])
	}
	if tail.Reset(); tail.String() != "" {
		t.Error("something is left")
	}
}
