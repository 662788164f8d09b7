// Package serving has the commands that run a server: serve; webhook, which serves the built-in admission plugins to
// other API servers; and envtest, with kube-apiserver and etcd, the names under which gatehouse runs in tests.
package serving
