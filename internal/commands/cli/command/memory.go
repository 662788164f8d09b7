package command

import (
	"os"

	"github.com/gatehouse-dev/gatehouse/internal/kit/prelude"
	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
)

// BoundMemory sets the memory limit of the Go runtime, in bytes, above which the heap is collected more often.
// It does not override GOMEMLIMIT. The limit applies to the whole process. It is unchanged if the command does
// not write to the process's standard output, since the process then runs other code too.
func BoundMemory(streams Streams, bytes int64) {
	if terminal.Exact(streams.Out) == os.Stdout && os.Getenv("GOMEMLIMIT") == "" {
		prelude.LimitMemory(bytes)
	}
}
