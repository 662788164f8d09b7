package stack

import (
	"runtime"
	"testing"
	"unsafe"
)

// Calls after Grow find their room on the stack: the stack does not move any more.
func TestGrow(t *testing.T) {
	for name, grow := range map[string]func(){"grown": Grow, "not grown": func() {}} {
		moved := make(chan bool)
		go func() {
			grow()
			moved <- moves(room - 1<<10)
		}()
		if got, want := <-moved, name == "not grown"; got != want {
			t.Errorf("%s: the stack moves: %t, want %t", name, got, want)
		}
	}
}

// moves reports whether the stack moves when so many bytes of it are used.
func moves(size int) bool {
	var here byte
	before := uintptr(unsafe.Pointer(&here))
	descend(size)
	return uintptr(unsafe.Pointer(&here)) != before
}

//go:noinline
func descend(size int) {
	var frame [256]byte
	if size > len(frame) {
		descend(size - len(frame))
	}
	runtime.KeepAlive(&frame)
}
