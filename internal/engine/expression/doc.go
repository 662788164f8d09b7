// Package expression is CEL for admission: the variables of expressions, their compilation, their
// values for a request, and the limits of their cost.
//
// An Expression is a text with its permitted variables and its required type. It is compiled when
// it is first needed. A Cache creates expressions: equal texts of several policies and webhooks are
// one Expression, which is compiled once.
//
// A Request has the values of the variables of one request in one kind. Each value is created when
// an expression first uses it, and all later expressions share it. A Run evaluates several
// expressions with one budget; it evaluates the variables of a policy once.
//
// # Language
//
// The libraries, types and limits come from k8s.io/apiserver, so that an expression has the same
// meaning as in a cluster (S16.1). Stored expressions are compiled with the full language of this
// version; Check accepts only the language that every server of this version and the previous one
// supports (S16.2).
//
// # Concurrency
//
// Expressions, Variables and a Cache are safe for concurrent use. A Request and its Runs are for
// one goroutine.
package expression
