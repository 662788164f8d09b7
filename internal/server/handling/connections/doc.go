// Package connections closes connections: all connections of clients when a server for tests ends
// at once, and the connections of a server to itself when the server ends.
package connections
