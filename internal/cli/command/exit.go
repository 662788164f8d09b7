package command

import (
	"errors"
	"fmt"
	"io"
)

// Streams are what a command reads and writes. Results go to Out, everything
// else to Err.
type Streams struct {
	In  io.Reader
	Out io.Writer
	Err io.Writer
}

// The exit codes of gatehouse, as the help topic exit-codes says them.
const (
	ExitOK    = 0
	ExitError = 1
	ExitUsage = 2
	// ExitRejected: explain --exit-code, for a request that would be rejected.
	ExitRejected = 3
	// ExitLikely: explain --exit-code, for a request that would be rejected unless something that cannot be seen
	// changes the object.
	ExitLikely = 4
)

// ExitStatus ends a command that has said everything with an exit code.
type ExitStatus int

// Error implements error. The text is empty: there is nothing more to say.
func (ExitStatus) Error() string { return "" }

// ExitCode is the only place where kinds of errors become exit codes.
func ExitCode(err error) int {
	var status ExitStatus
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &status):
		return int(status)
	case errors.As(err, new(UsageError)):
		return ExitUsage
	default:
		return ExitError
	}
}

// UsageError is a mistake in the command line itself.
type UsageError struct{ Err error }

// Error implements error.
func (e UsageError) Error() string { return e.Err.Error() }

// Unwrap returns what the mistake is.
func (e UsageError) Unwrap() error { return e.Err }

// Usagef returns a UsageError with a text that fmt.Errorf formats.
func Usagef(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }
