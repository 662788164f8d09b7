// Package etcd runs the embedded etcd of a server and opens clients to it or to
// an external cluster.
//
// The embedded etcd keeps its data below the server's data directory and listens
// on one unix socket, in a temporary directory that only the user of the server can
// reach; what a killed server leaves there, the next one of that user removes. Every
// acknowledged write is on disk: fsync is on.
package etcd
