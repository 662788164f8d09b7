// Package datalock reads the lock file of a data directory, which names the process that has the directory. Package
// etcd takes the lock.
package datalock
