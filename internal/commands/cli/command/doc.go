// Package command has the shared parts of gatehouse's commands: execution, exit codes, errors about the command
// line, sections of flags, the selected cluster, shell completion, the log, reports and progress.
//
// A command is one file: a constructor that only parses, filling in an options value, and a run function that
// only works. Results go to Streams.Out and everything else to Streams.Err, so that tests and terminals run the
// same code.
//
// Errors have kinds, and ExitCode, the only place that knows the numbers, turns a kind into an exit code. Usage
// is mentioned after usage errors only. The numbers and the environment variables are help topics of the
// program itself.
package command
