// Package peer runs the servers that are compared: kube-apiserver and gatehouse,
// each as a process of its own on an etcd process of its own, on this machine.
//
// Both servers get the same serving certificate, the same token, the same
// authorization mode and the same kind of etcd, so that what differs between
// them is the server. The processes die with the program that started them.
// Linux only.
package peer
