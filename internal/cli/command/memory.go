package command

import (
	"os"
	"runtime/debug"
)

// BoundMemory has the heap collected more often than by its growth from a size on, in bytes, unless GOMEMLIMIT
// says another one.
func BoundMemory(bytes int64) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(bytes)
	}
}
