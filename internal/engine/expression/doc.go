// Package expression is CEL as admission uses it: the variables of expressions, how they are
// compiled, their values for a request, and the limits of their cost.
//
// An Expression is a text with the variables that it may use and the type that it must
// have. It is compiled when it is first needed. A Cache makes expressions: equal texts of
// several registrations are one Expression, which is compiled once.
//
// A Request has the values of the variables of one request in one kind. Each value is made when
// an expression first uses it, and all later expressions share it. A Run evaluates several
// expressions with one budget; it evaluates the variables of a policy once.
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
