package harness

import (
	"bytes"
	"debug/elf"
	coding "encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// Clock shifts the wall clock of the server's next process ahead by a duration, or back if it is negative. It
// returns false on architectures other than amd64, where a test cannot shift the clock.
func (s *Server) Clock(t testing.TB, ahead time.Duration) bool {
	t.Helper()
	s.clock = ahead
	return runtime.GOARCH == "amd64"
}

// startWithClock starts a command whose wall clock is ahead by the given duration.
func startWithClock(cmd *exec.Cmd, ahead time.Duration) error {
	if ahead == 0 {
		return cmd.Start()
	}
	// ptrace requests must come from the thread that started the traced process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	attr := *cmd.SysProcAttr
	attr.Ptrace = true
	cmd.SysProcAttr = &attr
	if err := cmd.Start(); err != nil {
		return err
	}
	pid := cmd.Process.Pid
	var status syscall.WaitStatus
	_, err := syscall.Wait4(pid, &status, 0, nil)
	if err == nil && !status.Stopped() {
		err = fmt.Errorf("the process has not stopped: %v", status)
	}
	if err == nil {
		err = setClock(pid, ahead)
	}
	if err == nil {
		err = syscall.PtraceDetach(pid)
	}
	if err != nil {
		_ = cmd.Process.Kill()
		return fmt.Errorf("giving a process a clock of its own: %w", err)
	}
	return nil
}

var vdso = regexp.MustCompile(`(?m)^([0-9a-f]+)-([0-9a-f]+) .*\[vdso\]$`)

// setClock replaces the vDSO function that a stopped process calls to read the time. Go programs read it no
// other way.
func setClock(pid int, ahead time.Duration) error {
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	maps, err := os.ReadFile(filepath.Join(proc, "maps"))
	if err != nil {
		return err
	}
	found := vdso.FindSubmatch(maps)
	if found == nil {
		return errors.New("the process has no vDSO")
	}
	from, err := strconv.ParseUint(string(found[1]), 16, 64)
	if err != nil {
		return err
	}
	to, err := strconv.ParseUint(string(found[2]), 16, 64)
	if err != nil {
		return err
	}
	memory, err := os.Open(filepath.Join(proc, "mem"))
	if err != nil {
		return err
	}
	defer memory.Close()
	image, err := io.ReadAll(io.NewSectionReader(memory, int64(from), int64(to-from)))
	if err != nil {
		return err
	}
	library, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return err
	}
	functions, err := library.DynamicSymbols()
	if err != nil {
		return err
	}
	code := clockCode(ahead)
	for _, f := range functions {
		if f.Name == "__vdso_clock_gettime" && f.Size >= uint64(len(code)) {
			_, err := syscall.PtracePokeText(pid, uintptr(from+f.Value), code)
			return err
		}
	}
	return errors.New("the vDSO has no clock_gettime")
}

// clockCode is amd64 code for clock_gettime(clock, time) that shifts the wall clock ahead.
func clockCode(ahead time.Duration) []byte {
	code := []byte{
		0xb8, 228, 0, 0, 0, // mov eax, SYS_clock_gettime
		0x0f, 0x05, // syscall
		0x85, 0xff, // test edi, edi: is it the wall clock?
		0x75, 13, // jne ret
		0x48, 0xba, // mov rdx, seconds
	}
	code = coding.LittleEndian.AppendUint64(code, uint64(int64(ahead/time.Second)))
	return append(code,
		0x48, 0x01, 0x16, // add [rsi], rdx
		0xc3) // ret
}
