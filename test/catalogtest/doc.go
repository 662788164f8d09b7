// Package catalogtest gives tests the built-in kinds, with storage in an etcd of
// their own and without a server around them.
package catalogtest
