// Package etcd runs the embedded etcd of a server and opens clients to it or to
// an external cluster.
//
// The embedded etcd keeps its data below the server's data directory and listens
// on one unix socket, which only the user of the server can reach. Every
// acknowledged write is on disk: fsync is on.
package etcd
