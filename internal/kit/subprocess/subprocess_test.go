package subprocess

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A program ends with its descendants, even if both ignore SIGTERM, and on Linux even if a descendant has left the
// process group of the program (S33.8).
func TestAProgramEndsWithAllThatItStarted(t *testing.T) {
	for name, script := range map[string]string{
		"at once": "sleep 1000 & echo $!; wait",
		// In a session of its own, whose parent has ended.
		"away":     "(exec setsid sh -c 'trap \"\" TERM; echo $$; while :; do sleep 1000; done') & wait",
		"gone":     "setsid sh -c 'sleep 1000 & echo $!' & wait; sleep 1000",
		"by force": "trap '' TERM; (trap '' TERM; while :; do sleep 1000; done) & echo $!; while :; do wait; done",
	} {
		t.Run(name, func(t *testing.T) {
			if runtime.GOOS != "linux" && strings.Contains(script, "setsid") {
				t.Skip("only Linux shows the environment of a process")
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
			line := make([]byte, 32)
			n, err := read.Read(line)
			if err != nil {
				t.Fatal(err)
			}
			child, err := strconv.Atoi(strings.TrimSpace(string(line[:n])))
			if err != nil {
				t.Fatal(err)
			}
			p.Stop(100 * time.Millisecond)
			for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
				if err := syscall.Kill(child, 0); errors.Is(err, syscall.ESRCH) || zombie(child) {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("process %d, which the program started, runs on", child)
				}
			}
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
