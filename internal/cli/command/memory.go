package command

import (
	"os"
	"runtime/debug"

	"github.com/gatehouse-dev/gatehouse/internal/terminal"
)

// BoundMemory has the heap collected more often than by its growth from a size on, in bytes, unless GOMEMLIMIT
// says another one. The limit is that of the process: a command that writes elsewhere than to the standard output
// of its process shares the process with others, and leaves the limit as it is.
func BoundMemory(streams Streams, bytes int64) {
	if terminal.Exact(streams.Out) == os.Stdout && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(bytes)
	}
}
