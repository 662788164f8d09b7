// Package server is the API server: New checks the options, Run serves until its context ends.
//
// The frame is k8s.io/apiserver's generic server: filters, TLS, health, metrics, audit. The kinds
// come from package catalog and package customresources. Package storage stores their objects,
// package resources serves them, and package auth authorizes requests. Every write goes through the
// admission chain that package admission builds.
//
// # Putting a server together
//
// New makes settings of the options (settings.go). Run opens etcd and puts the parts together in
// phases (assemble.go). Each phase is a type that has the phase before it: etcd is open (opened.go,
// database.go), the server can be reached (serving.go), the generic server of k8s.io/apiserver is
// configured (frame.go), the admission chain is built (admission.go), resources can be stored
// (stores.go), the server has the kinds and the API answers (exposed.go), controllers are ready to
// run (controllers.go), and the steps of the start are known (start.go). Parts that need each other
// are connected in the end (connect.go). Then Run runs them all (run.go). The code of a file uses
// the files of earlier phases only.
package server
