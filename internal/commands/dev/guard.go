package dev

import (
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// script ends process groups and removes files when its standard input ends, unless the last line dismisses it. Each
// line lists the running groups. The first argument is the time, in tenths of a second, in which a group may end itself. A
// leader that has ended stays a zombie (Z) until its parent waits for it, for ever in a container without an init process.
// A terminal that is still in the state set by terminal.Keys is reset; a shell that edits a line turned icrnl off
// itself.
const script = `while read -r line; do groups=$line; done
[ "$groups" = end ] && exit
left=$1
shift
for group in $groups; do
while [ "$left" -gt 0 ] && read -r _ _ state _ <"/proc/$group/stat" && [ "$state" != Z ]; do sleep 0.1; left=$((left - 1)); done
kill -s KILL -- "-$group" 2>/dev/null
done
rm -rf -- "$@"
[ -t 3 ] || exit
case $(stty -a <&3) in
*" -icrnl"*) ;;
*) stty icanon echo <&3 ;;
esac`

// groupsEnd is the first argument of the script. Only supervisors of programs end themselves, on Linux; the script does not
// wait where /proc is missing.
var groupsEnd = "100"

// dismissed is the last line for the script.
const dismissed = "end"

// guard cleans up after a session that is killed. It is a process of a few hundred kilobytes, in a session of its
// own, so that no signal of a terminal reaches it.
type guard struct {
	pipe io.WriteCloser
	cmd  *exec.Cmd

	mu     sync.Mutex
	groups map[int]bool
}

// newGuard starts a guard for paths, which may not exist, and for a terminal, which may be nil.
func newGuard(terminal *os.File, paths ...string) (*guard, error) {
	g := &guard{groups: map[int]bool{}}
	g.cmd = exec.Command("/bin/sh", append([]string{"-c", script, "gatehouse-dev-guard", groupsEnd}, paths...)...)
	g.cmd.Dir = "/"
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if terminal != nil {
		g.cmd.ExtraFiles = []*os.File{terminal}
	}
	var err error
	if g.pipe, err = g.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	return g, g.cmd.Start()
}

// set records whether a process group runs. If the guard was killed, the session continues without it.
func (g *guard) set(group int, runs bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if runs {
		g.groups[group] = true
	} else {
		delete(g.groups, group)
	}
	var line []string
	for id := range g.groups {
		line = append(line, strconv.Itoa(id))
	}
	_, _ = io.WriteString(g.pipe, strings.Join(line, " ")+"\n")
}

// end dismisses the guard.
func (g *guard) end() {
	_, _ = io.WriteString(g.pipe, dismissed+"\n")
	g.pipe.Close()
	_ = g.cmd.Wait()
}
