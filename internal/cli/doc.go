// Package cli is the command line of gatehouse.
//
// A command is one file: a constructor that only parses, filling in an options
// value, and a run function that only works. Results go to Streams.Out and
// everything else to Streams.Err, so that tests and terminals run the same code.
//
// Errors have kinds, and exitCode, the only place that knows the numbers, turns
// a kind into an exit code. Usage is mentioned after usage errors only. The
// numbers and the environment variables are help topics of the program itself.
//
// The kubectl command is the exception: it is the real kubectl, which owns the
// process from then on, its exit code included.
package cli
