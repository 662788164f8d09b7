// Package storage gives every resource its storage in etcd: all resources share one client, and
// each has a watch cache, which the first list or watch of the resource opens.
//
// A server has well over a hundred resources and most installations use a few. A store that is
// opened eagerly costs a gRPC connection, a watch and a cache; here an unused resource costs a
// closure. See Factory.
package storage
