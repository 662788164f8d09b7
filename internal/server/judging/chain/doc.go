// Package chain makes the admission plugins of a server: those of the engine, and those that are
// compiled into kube-apiserver.
package chain
