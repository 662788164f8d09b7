// Package test holds the end-to-end tests of the server: the real binary over
// TLS, spoken to by plain HTTP, client-go, controller-runtime and kubectl.
//
// Each file is a topic. Tests that do not disturb one another share one server
// and have a namespace each; the others start their own.
package test
