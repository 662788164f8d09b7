// Package controllers runs the controllers of a cluster.
//
// The controllers are those of a kube-controller-manager, from its own packages: they
// collect garbage, count what quotas are about, make the ServiceAccount of a namespace,
// and so on. The table in table.go has a row for each. New chooses rows by the value of
// --controllers; Run runs them, on one of several servers at a time if there is an
// election.
//
// # What is where
//
// A term is the time in which this server runs controllers. It has everything that they share:
// informers, a mapper of kinds, and a client for each controller. The client acts as the
// ServiceAccount that the controller has in a cluster, and is subject to RBAC and admission. All
// requests of a term end with it. A term that is over leaves nothing behind.
//
// # What it costs
//
// Controllers start when the server is ready. A controller for a kind starts when the kind has an
// object, and informers of kinds without objects wait at no cost: see package lazyinformer.
// Controllers share the informers that the server has anyway.
package controllers
