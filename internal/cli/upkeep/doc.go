// Package upkeep has the commands that look after a server: backup, etcd, debug and version.
package upkeep
