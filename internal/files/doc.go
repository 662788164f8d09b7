// Package files reads and replaces files whose paths other people chose: in directories that
// others write to, in configuration, on a command line.
//
// Such a path may be a named pipe, on which a reader waits for ever, a device that never ends,
// or a file of any size. This package reads regular files up to a limit, and refuses the rest
// with a sentence that names the file.
package files
