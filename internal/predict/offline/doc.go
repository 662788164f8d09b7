// Package offline makes the plan of a request without the server that would judge it:
// from files, or from what a cluster lets the caller read.
//
// # One way
//
// A World has the known objects: registrations, namespaces, kinds, stored objects, and why others
// cannot be seen. Read makes one of files, Connect of a cluster. World.Plan is the only way from
// there to a plan, and leaves every decision to package plan.
//
// # What is known without a server
//
// The built-in kinds, their plurals and scopes are a table, kinds.txt. Their defaults and
// conversions are those of the types that the server is built with. Custom resources come
// from their definitions; of a kind without one the plural is guessed, which the plan says.
//
// # What is not known
//
// A plan never guesses what is not known. It says so in a step of effect unknown, or in its
// notes.
//
// # Concurrency
//
// A World may be used by several goroutines once it is made.
package offline
