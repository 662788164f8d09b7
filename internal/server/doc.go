// Package server is the API server: New checks the options, Run serves until its
// context ends.
//
// The frame is k8s.io/apiserver's generic server: filters, TLS, health, metrics,
// audit. The kinds come from package catalog and package customresources. Package storage
// stores their objects, package resources serves them, and package auth decides who may do
// what. The chain that package admission builds judges every write.
//
// # Putting a server together
//
// New makes settings of the options (settings.go). Run opens etcd and makes the parts,
// each out of those before it (assemble in run.go): certificates and the server's own
// client (serving.go), the chain of handlers (frame.go), admission (admission.go,
// plugins.go), stores (stores.go), resources with what describes them (api.go), the
// steps of the start (boot.go, furnish.go) and controllers (controllers.go). Then it
// runs them all.
package server
