// Package cli is the command line of gatehouse: the root command with its help, and the other programs that the
// binary can run as. The packages below it are the sections of 'gatehouse --help' and do not import each other:
// serving runs a server, before and after are about a write, changing changes admission safely, and upkeep
// maintains a server. Their shared code is package command.
//
// The kubectl command has a package of its own, kubectl: it is the real kubectl, which owns the process from then
// on, its exit code included.
package cli
