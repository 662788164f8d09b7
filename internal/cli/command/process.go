package command

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/gatehouse-dev/gatehouse/internal/program"
)

// ProgramName is the name that this program was started under. It is read once: kubectl's parts
// need os.Args changed.
var ProgramName = startedAs()

func startedAs() string {
	name := program.Name()
	// It is not for the plugins that kubectl starts.
	os.Unsetenv(program.Variable)
	return name
}

// IsPlugin reports whether kubectl runs this program as its plugin, which goes by the name
// of the program. A plugin works on the cluster that kubectl works on.
func IsPlugin() bool {
	return ProgramName == "kubectl-gatehouse"
}

// signals gets the first signal that ends the process.
var signals = make(chan os.Signal, 1)

// Signals returns a context that the first signal that ends a process cancels: its cause is context.Canceled. A second
// signal ends the process at once. Signals is called once.
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

// LeaveSignals gives the signals that end a process back to it: what runs from now on has
// its own handlers, or none. A signal that came before is sent again.
func LeaveSignals(ctx context.Context) {
	context.AfterFunc(ctx, func() { _ = syscall.Kill(os.Getpid(), syscall.SIGTERM) })
	// Other than Reset, Stop loses no signal that is on its way.
	signal.Stop(signals)
}
