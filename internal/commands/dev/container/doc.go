// Package container describes a program by the container that runs it in a cluster: its arguments, its environment and
// the files of its volumes.
//
// Everything here is computed from manifests. Paths of the container that a process on this machine cannot have are
// replaced by paths below a directory (Paths).
package container
