// Package offline makes the plan of a request without the server that would judge it:
// from files, or from what a cluster lets the caller read.
//
// # One way
//
// A World is what is known: registrations, namespaces, kinds, stored objects, and why the
// rest cannot be seen. Read makes one of files, Connect of a cluster. World.Plan is the
// only way from there to a plan, and leaves every decision to package plan.
//
// # What is known without a server
//
// The built-in kinds, their plurals and scopes are a table, kinds.txt. Their defaults and
// conversions are those of the types that the server is built with. Custom resources come
// from their definitions; of a kind without one the plural is guessed, which the plan says.
//
// # What is not known
//
// It is said, and never guessed: in a step of effect unknown, or in the plan's notes.
//
// # Concurrency
//
// A World may be used by several goroutines once it is made.
package offline
