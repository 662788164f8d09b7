// Package controllers runs the controllers of a cluster.
//
// The controllers come from the packages of kube-controller-manager: they collect garbage, count
// the objects that quotas limit, make the ServiceAccount of a namespace, and so on. The table in
// table.go has a row for each. New chooses rows by the value of --controllers; Run runs them, on
// one of several servers at a time if there is an election.
//
// # Terms
//
// A term is the time in which this server runs controllers. It has the shared informers, a mapper
// of kinds, and a client for each controller. The client acts as the ServiceAccount of the
// controller, and is subject to RBAC and admission. All requests of a term end with it. A term that
// is over leaves nothing behind.
//
// # Cost
//
// Controllers start when the server is ready. A controller for a kind starts when the kind has an
// object, and informers of kinds without objects wait at no cost: see package lazyinformer.
// Controllers share the informers that the server has anyway.
package controllers
