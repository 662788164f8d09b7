package subprocess

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// supervisor is the name under which this program runs as the parent of another one. It adopts the orphans of the
// program, and kills all descendants when the program ends, and when its own parent ends. A session or an environment
// of its own does not hide a descendant. Its work is done before most packages are initialized, so it is small.
const supervisor = "gatehouse-supervisor"

const (
	self = "/proc/self/exe"
	// reports is the file descriptor of a supervisor's reports.
	reports = 3
	// subreaper is PR_SET_CHILD_SUBREAPER of prctl(2).
	subreaper = 36
)

func init() {
	if len(os.Args) > 4 && os.Args[0] == supervisor {
		places, program := placesOf(os.Args[1:])
		supervise(places, program[0], program[1:])
		os.Exit(0)
	}
}

// supervise runs a program until it and its descendants have ended.
func supervise(places Places, path string, args []string) {
	syscall.CloseOnExec(reports)
	report := os.NewFile(reports, "reports")
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, end)
	// Every Linux since 3.4 has it. Without it, orphans are not found.
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, subreaper, 1, 0)
	var err error
	if len(places.Here) > 0 {
		err = places.enter()
	}
	program := 0
	if err == nil {
		program, err = syscall.ForkExec(path, args, &syscall.ProcAttr{
			Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
		})
	}
	if err != nil {
		errno, _ := errors.AsType[syscall.Errno](err)
		fmt.Fprintln(report, failed, int(errno))
		return
	}
	fmt.Fprintln(report, started, program)
	gone := make(chan struct{})
	go func() {
		for {
			select {
			case <-gone:
				return
			case s := <-signals:
				if s == end {
					// The program may have left its process group.
					_ = syscall.Kill(-program, syscall.SIGKILL)
					_ = syscall.Kill(program, syscall.SIGKILL)
					continue
				}
				for id := range descendants() {
					// The process group has the signal already, and a second one makes some programs give up.
					if group, err := syscall.Getpgid(id); err == nil && group != program {
						_ = syscall.Kill(id, syscall.SIGTERM)
					}
				}
			}
		}
	}()
	var status syscall.WaitStatus
	for id := 0; id != program; {
		if id, err = syscall.Wait4(-1, &status, 0, nil); err != nil && !errors.Is(err, syscall.EINTR) {
			return
		}
	}
	close(gone)
	killDescendants()
	fmt.Fprintln(report, ended, int(status))
}

// killDescendants kills the descendants of this process, and returns when they have ended. Processes of other users
// may remain.
func killDescendants() {
	for left := reap(syscall.WNOHANG); left; left = reap(0) {
		killed := false
		for id, parent := range descendants() {
			// The others become children when their parents end.
			if parent == os.Getpid() && syscall.Kill(id, syscall.SIGKILL) == nil {
				killed = true
			}
		}
		if !killed {
			return
		}
	}
}

// reap waits for children that have ended, for the first one with flags of wait4(2), and reports whether there are others.
func reap(flags int) (left bool) {
	for {
		id, err := syscall.Wait4(-1, nil, flags, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return false
		case id == 0:
			return true
		default:
			flags = syscall.WNOHANG
		}
	}
}

// descendants returns the IDs of the descendants of this process, with the IDs of their parents.
func descendants() map[int]int {
	parents := map[int]int{}
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		data, _ := os.ReadFile(file)
		// The name of the program, in parentheses, may have any characters. State and parent follow.
		fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
		if len(fields) > 1 {
			id, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			parents[id], _ = strconv.Atoi(fields[1])
		}
	}
	below := map[int]int{}
	for id, parent := range parents {
		// IDs that are reused meanwhile can make a cycle.
		for at, steps := parent, 0; at != 0 && steps < len(parents); at, steps = parents[at], steps+1 {
			if at == os.Getpid() {
				below[id] = parent
				break
			}
		}
	}
	return below
}

// newSupervision makes a command run under a supervisor. Where /proc is not mounted, it runs without.
func newSupervision(cmd *exec.Cmd, places Places) (*supervision, error) {
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	if _, err := os.Stat(self); err != nil || cmd.Err != nil {
		if len(places.Here) > 0 {
			return nil, errors.Join(err, cmd.Err)
		}
		return nil, nil
	}
	if len(places.Here) > 0 {
		isolate(cmd)
	}
	s := &supervision{program: cmd.Path}
	var err error
	if s.read, s.write, err = os.Pipe(); err != nil {
		return nil, err
	}
	cmd.SysProcAttr.Pdeathsig = end
	cmd.Path, cmd.Args = self, slices.Concat([]string{supervisor}, places.arguments(), []string{cmd.Path}, cmd.Args)
	cmd.ExtraFiles = []*os.File{s.write}
	return s, nil
}
