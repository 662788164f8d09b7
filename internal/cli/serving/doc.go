// Package serving has the commands that run a server: serve, kubectl, which talks to it, webhook,
// which serves the compiled-in plugins to others, and envtest with the programs under whose names
// gatehouse runs in tests, kube-apiserver and etcd.
package serving
