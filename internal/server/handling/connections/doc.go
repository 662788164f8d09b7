// Package connections closes all connections of clients when a server for tests ends at once.
package connections
