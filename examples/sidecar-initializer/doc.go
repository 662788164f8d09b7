// Sidecar-initializer is an example of an initializer controller: a process that
// adds a container to new deployments before anybody else sees them.
//
// It is what users of package initializer write: one function for one object
// (sidecar.go), and a main function that runs it. The README in this folder says
// what to type.
package main
