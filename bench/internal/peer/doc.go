// Package peer runs the servers under comparison: kube-apiserver and gatehouse, each as a separate process with a
// separate etcd process, on this machine.
//
// Both servers get the same serving certificate, the same token, the same authorization mode and the same kind of
// etcd, so that they differ only in the server program. The processes die with the program that started them. Linux
// only.
package peer
