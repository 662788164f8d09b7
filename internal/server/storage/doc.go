// Package storage gives every resource its place in etcd: one client for all of
// them, a watch cache each, both made when the resource is first used.
//
// A server has well over a hundred resources and most installations use a few.
// A store that is opened eagerly costs a gRPC connection, a watch and a cache;
// here an unused resource costs a closure. See Factory.
package storage
