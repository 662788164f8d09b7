// Package cli is the command line of gatehouse: the root with its help, and the programs that
// gatehouse stands in for. The packages below it are the doors of 'gatehouse --help', which do not
// import each other: serving runs a server, before and after are about a write, changing changes
// admission safely, and upkeep looks after a server. What all of them share is package command.
//
// The kubectl command is the exception among the commands: it is the real kubectl, which owns the
// process from then on, its exit code included.
package cli
