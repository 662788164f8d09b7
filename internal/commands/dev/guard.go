package dev

import (
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/gatehouse-dev/gatehouse/internal/kit/subprocess"
)

// script kills process groups and removes files when its standard input ends, unless the last line dismisses it. Each
// line lists the running groups. The first argument begins an environment entry of processes that left these groups.
// One grep reads all environments where it can: on a busy machine, two processes for each of them take minutes.
// A terminal that is still in the state set by terminal.Keys is reset; a shell that edits a line turned icrnl off
// itself.
const script = `while read -r line; do groups=$line; done
[ "$groups" = end ] && exit
for group in $groups; do kill -s KILL -- "-$group" 2>/dev/null; done
mark=$1
shift
if printf 'a\000b' | grep -qz '^b$' 2>/dev/null; then
marked() { grep -lsz "^$mark" /proc/[0-9]*/environ; }
else
marked() {
for environ in /proc/[0-9]*/environ; do
{ tr '\000' '\n' <"$environ" | grep -q "^$mark" && echo "$environ"; } 2>/dev/null
done
}
fi
for round in 1 2; do
for environ in $(marked); do
id=${environ#/proc/}
kill -s KILL "${id%/environ}" 2>/dev/null
done
done
rm -rf -- "$@"
[ -t 3 ] || exit
case $(stty -a <&3) in
*" -icrnl"*) ;;
*) stty icanon echo <&3 ;;
esac`

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
	g.cmd = exec.Command("/bin/sh", append([]string{"-c", script, "gatehouse-dev-guard", subprocess.Mark}, paths...)...)
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
