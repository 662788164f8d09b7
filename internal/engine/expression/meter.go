package expression

import (
	"context"

	"github.com/google/cel-go/interpreter"
)

const (
	// modest is the number of bytes of values that a Run may produce without waiting. A Run that
	// produces more is large, and at most maxLarge Runs are large at a time.
	modest   = 1 << 20
	maxLarge = 8
)

// large has an element for each large Run.
var large = make(chan struct{}, maxLarge)

// meterName is the variable with the meter of a Run. No expression can refer to it.
const meterName = "\x00meter"

// meter counts the bytes of the values that the expressions of a Run produce (S16.23).
type meter struct {
	ctx  context.Context
	made int
	held bool
}

// add counts a value. It waits while there are too many other large Runs, and ends the evaluation
// if the Run has exceeded its limit, or its request has ended.
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

// end releases the slot of a large Run.
func (m *meter) end() {
	if m.held {
		m.held = false
		<-large
	}
}
