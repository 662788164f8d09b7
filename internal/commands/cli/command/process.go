package command

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/gatehouse-dev/gatehouse/internal/kit/program"
)

// ProgramName is the name that this program was started under. It is read once, since parts of kubectl change
// os.Args.
var ProgramName = startedAs()

func startedAs() string {
	name := program.Name()
	// Plugins that kubectl starts must not inherit the variable.
	os.Unsetenv(program.Variable)
	return name
}

// IsPlugin reports whether kubectl runs this program as its plugin, by the name of the program. A plugin works
// on kubectl's cluster.
func IsPlugin() bool {
	return ProgramName == "kubectl-gatehouse"
}

// signals receives the first signal that ends the process.
var signals = make(chan os.Signal, 1)

// Signals returns a context that is cancelled by the first signal that ends a process, with the cause
// context.Canceled. A second signal ends the process at once. Signals must be called once.
func Signals() context.Context {
	ctx, end := context.WithCancelCause(context.Background())
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		s := <-signals
		signal.Stop(signals)
		end(fmt.Errorf("%s signal received: %w", s, context.Canceled))
	}()
	return ctx
}

// LeaveSignals restores the default effect of the signals that end a process: later code may install its own
// handlers. A signal that arrived earlier is sent again.
func LeaveSignals(ctx context.Context) {
	context.AfterFunc(ctx, func() { _ = syscall.Kill(os.Getpid(), syscall.SIGTERM) })
	// Unlike Reset, Stop loses no signal that is being delivered.
	signal.Stop(signals)
}
