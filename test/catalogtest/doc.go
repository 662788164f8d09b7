// Package catalogtest provides the built-in kinds for tests, with storage in a separate etcd and without a
// server.
package catalogtest
