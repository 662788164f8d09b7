// Package etcdtest starts a separate etcd for tests.
package etcdtest
