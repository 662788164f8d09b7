// Package dev runs a webhook program on this machine, with a server in the same process that calls it.
//
// # Setup
//
// A Session starts a stage that other clients can reach, and applies the objects of a project. Objects that
// the program evaluates are applied after the program listens. The services of the registrations are replaced
// by the program: their webhooks trust a certificate of the session, and are called at the program's port.
//
// # The container
//
// The program gets the arguments, the environment and the files of its container (package container). The files are in a
// directory of the session, and on Linux also at the paths of the container (subprocess.Places). Without a command, the Dockerfile names it (package image). The pod of the program exists as an object
// (pod.go), without an address: a Service with endpoints would lead to the pod.
//
// # How the program is replaced
//
// The server makes the TLS connections to the program itself. A TLS-terminating proxy in between would hide a
// program that speaks HTTP and a wrong certificate, and could not connect to a program that issues its own
// certificates. Instead, the session holds requests at the server's transport (gate.go), where it knows when
// the last one is answered. The old program serves until the new one is built. Then requests wait, for at most
// half of their timeout, while the old program ends and the new one begins to listen at the same port.
//
// # Cleanup
//
// Nothing is left behind. Programs run in process groups of their own. If the session is killed, a shell that
// reads a pipe of the session kills the programs and removes the files (guard.go). Files that the shell could
// not remove are removed with the next temporary directory of this user.
package dev
