// Package envtest starts Gatehouse like the test libraries of operators, under the names kube-apiserver, etcd
// and kubectl.
package envtest
