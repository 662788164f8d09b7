// Package files reads and replaces files whose paths come from other people: in shared directories,
// in configuration, on a command line.
//
// Such a path may be a named pipe, which blocks its reader, an endless device, or a file of any
// size. This package reads regular files up to a limit, and refuses all others with a sentence that
// names the file.
package files
