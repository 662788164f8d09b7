package command

import (
	"errors"
	"fmt"
	"io"
)

// Streams are the input and the outputs of a command. Results go to Out, everything else to Err.
type Streams struct {
	In  io.Reader
	Out io.Writer
	Err io.Writer
}

// The exit codes of gatehouse. The help topic exit-codes describes them.
const (
	ExitOK    = 0
	ExitError = 1
	ExitUsage = 2
	// ExitRejected: explain --exit-code, for a request that would be rejected.
	ExitRejected = 3
	// ExitLikely: explain --exit-code, for a request that would be rejected unless an unknown step changes the
	// object.
	ExitLikely = 4
)

// ExitStatus is the error of a command that has printed its result already. It sets the exit code.
type ExitStatus int

// Error implements error. The text is empty, so nothing more is printed.
func (ExitStatus) Error() string { return "" }

// ExitCode returns the exit code of an error. It is the only place where kinds of errors become exit codes.
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

// Unwrap returns the error about the command line.
func (e UsageError) Unwrap() error { return e.Err }

// Usagef returns a UsageError with a text that fmt.Errorf formats.
func Usagef(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }
