// Package connections ends connections: those of clients when a server for tests ends at once,
// and those of a server to itself when it ends.
package connections
