// Package etcd runs the embedded etcd of a server and opens clients to it or to an external
// cluster.
//
// The embedded etcd keeps its data below the server's data directory and listens on one unix
// socket, in a temporary directory that only the user of the server can reach; the next server of
// that user removes the files of a killed server there. Every acknowledged write is on disk, since
// fsync is on by default.
//
// # Errors of the disk
//
// While its disk is nearly full, Guard refuses writes with status 503, and reads continue. When its
// database has reached the quota, etcd refuses writes, and accepts them again when there is room.
// Where etcd would end the process or panic, Err delivers the error instead: the server then shuts
// down in order and reports the error.
package etcd
