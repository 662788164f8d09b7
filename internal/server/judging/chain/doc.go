// Package chain makes the admission plugins of a server: the plugins of the engine, and the
// built-in admission plugins of kube-apiserver.
package chain
