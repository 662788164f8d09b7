package command

import (
	"io"
	"os"
	"runtime/debug"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/kit/prelude"
	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
)

func TestMemoryIsBoundedInTheOwnProcess(t *testing.T) {
	before := prelude.TakeMemoryLimit()
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	const bound = 1 << 40
	for _, tc := range []struct {
		name, environment string
		out               io.Writer
		want              int64
	}{
		{"output of the process", "", terminal.NewWriter(os.Stdout), bound},
		{"output of another command in the process", "", terminal.NewWriter(io.Discard), before},
		{"a limit of the user", "2TiB", terminal.NewWriter(os.Stdout), before},
	} {
		t.Run(tc.name, func(t *testing.T) {
			debug.SetMemoryLimit(before)
			t.Setenv("GOMEMLIMIT", tc.environment)
			BoundMemory(Streams{Out: tc.out}, bound)
			if got := debug.SetMemoryLimit(-1); got != tc.want {
				t.Errorf("the limit is %d bytes, want %d", got, tc.want)
			}
		})
	}
}
