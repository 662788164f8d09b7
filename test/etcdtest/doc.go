// Package etcdtest gives tests an etcd of their own.
package etcdtest
