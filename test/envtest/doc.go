// Package envtest has tests that start Gatehouse as the test libraries of operators do,
// under the names kube-apiserver, etcd and kubectl.
package envtest
