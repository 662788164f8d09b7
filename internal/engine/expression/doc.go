// Package expression is CEL as admission uses it: what expressions may name, how they are
// compiled, what they see of a request, and what they may cost.
//
// An Expression is a text with the variables that it may use and the type that it must
// have. It is compiled when it is first needed. A Cache makes expressions: equal texts of
// several registrations are one Expression, which is compiled once.
//
// A Request has the values of the variables of one request in one kind. Each is made when
// an expression first asks for it, and then shared by all that follow. A Run is a number
// of expressions with one budget; the variables of a policy are evaluated once in it.
//
// # Language
//
// The libraries, the types and the limits are those of k8s.io/apiserver, so that an
// expression means here what it means in a cluster (S16.1). Stored expressions are
// compiled with everything that is known; Check accepts only what every server of this
// version and the one before understands (S16.2).
//
// # Concurrency
//
// Expressions, Variables and a Cache are safe for concurrent use. A Request and its Runs
// are for one goroutine.
package expression
