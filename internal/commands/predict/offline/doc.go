// Package offline plans the admission of a request without the server that would handle it: from files, or from the
// objects that the caller may read in a cluster.
//
// # One way
//
// A World has the known objects: registrations, namespaces, kinds, stored objects, and the reasons why others cannot be
// seen. Read makes one from files, Connect from a cluster. World.Plan is the only way from there to a plan, and leaves
// every decision to package plan.
//
// # Known without a server
//
// The built-in kinds, their plurals and scopes are a table, kinds.txt. Their defaults and conversions come from the
// types that the server is built with. Custom resources come from their CRDs. For a kind without a CRD the plural is
// guessed, which the plan reports.
//
// # Unknown
//
// A plan never guesses. It reports unknown facts in a step of effect unknown, or in its notes.
//
// # Concurrency
//
// A World may be used concurrently once it is made.
package offline
