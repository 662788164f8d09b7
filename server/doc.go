// Package server is the API server: New checks the options, Run serves until its
// context ends.
//
// The frame is k8s.io/apiserver's generic server: filters, TLS, health, metrics,
// audit. The kinds come from package catalog and package customresources, are
// kept by package storage, and are served by package resources; who may do what
// is decided by package auth; and every write is judged by the chain that
// package admission builds.
package server
