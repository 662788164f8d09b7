// Package dev runs the program of a webhook on this machine, with a server in this process that
// calls it.
//
// # One world
//
// A Session opens a stage that others reach, too, and gives it the objects of a project. What the
// program judges comes after the program listens. The services of the registrations stand for
// the program: their webhooks trust a certificate that the session made, and are called at the program's port.
//
// # How the program is replaced
//
// The server speaks TLS with the program itself: a proxy in between that ended TLS would hide a
// program that speaks HTTP, and a certificate that does not fit, and would not reach a program that makes its
// own certificates. The session holds requests at the transport of the server instead (gate.go), where
// it sees when the last one is answered. The old program serves until the new one is built. Then
// requests wait, half of the time that they have at most, while the old program ends and the new
// one begins to listen at the same port.
//
// # What is left behind
//
// Nothing. Programs run in process groups of their own. A shell that reads a pipe of the session
// kills them when the session is killed, and removes its files (guard.go); the next temporary
// directory of this user removes what the shell could not.
package dev
