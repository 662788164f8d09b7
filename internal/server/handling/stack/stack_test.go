package stack

import (
	"runtime"
	"testing"
	"unsafe"
)

// Calls after Grow find enough room on the stack, so that the stack does not move any more.
func TestGrow(t *testing.T) {
	for _, tc := range []struct {
		name  string
		grow  func()
		used  int
		moves bool
	}{
		{"grown", Grow, room - 1<<10, false},
		{"grown for a part", GrowPart, part - 1<<10, false},
		{"grown for a part, and used whole", GrowPart, room - 1<<10, true},
		{"not grown", func() {}, part - 1<<10, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			moved := make(chan bool)
			go func() {
				tc.grow()
				moved <- moves(tc.used)
			}()
			if got := <-moved; got != tc.moves {
				t.Errorf("the stack moves: %t, want %t", got, tc.moves)
			}
		})
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
