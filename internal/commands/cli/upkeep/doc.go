// Package upkeep has the commands that maintain a server: backup, cluster, etcd, secrets-encryption, debug and
// version.
package upkeep
