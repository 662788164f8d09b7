package expression

import (
	"context"

	"github.com/google/cel-go/interpreter"
)

const (
	// modest is up to how many bytes of values a Run may make whenever it likes; one that
	// makes more is large, and there are maxLarge of these at a time.
	modest   = 1 << 20
	maxLarge = 8
)

// large has an element for each Run that is large.
var large = make(chan struct{}, maxLarge)

// meterName is the variable that has the meter of a Run. No expression can name it.
const meterName = "\x00meter"

// meter counts what the expressions of a Run make (S16.23).
type meter struct {
	ctx  context.Context
	made int
	held bool
}

// add counts a value. It waits while there are too many other large Runs, and ends the
// evaluation when the Run has made too much, or its request has ended.
func (m *meter) add(size int) {
	if m.made += size; m.made <= modest {
		return
	}
	if m.made > MaxMade {
		exceed()
	}
	if !m.held {
		select {
		case large <- struct{}{}:
			m.held = true
		case <-m.ctx.Done():
		}
	}
	if m.ctx.Err() != nil {
		panic(interpreter.EvalCancelledError{Cause: interpreter.ContextCancelled, Message: "operation interrupted"})
	}
}

// end lets another Run be large.
func (m *meter) end() {
	if m.held {
		m.held = false
		<-large
	}
}
