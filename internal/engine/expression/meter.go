package expression

import (
	"context"

	"github.com/google/cel-go/interpreter"
)

const (
	// modest is how many bytes of values a Run may make without waiting. A Run that makes more
	// is large, and at most maxLarge Runs are large at a time.
	modest   = 1 << 20
	maxLarge = 8
)

// large has an element for each Run that is large.
var large = make(chan struct{}, maxLarge)

// meterName is the variable that has the meter of a Run. No expression can name it.
const meterName = "\x00meter"

// meter counts the bytes of the values that the expressions of a Run make (S16.23).
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

// end makes room for another large Run.
func (m *meter) end() {
	if m.held {
		m.held = false
		<-large
	}
}
