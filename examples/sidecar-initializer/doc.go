// Sidecar-initializer is an example of an initializer controller: a process that adds a container to new
// deployments before other clients see them.
//
// It has the two parts of a program that uses package initializer: a function for one object (sidecar.go), and
// a main function that runs it. The README in this folder has the commands.
package main
