// Package condition compiles and evaluates match conditions: CEL expressions that are evaluated
// after rules and selectors, and decide whether a webhook is called or a policy evaluated.
//
// Compile compiles the conditions of one webhook or policy to a Set, once per version of its object
// (S2.37). Eval evaluates a Set for one request and returns the false condition or the error; the
// caller applies the failure policy. Package expression declares the variables and functions of
// expressions, and provides the values for a request.
//
// # Limits
//
// An expression may cost 1,000,000 units, all conditions of a webhook together 2,500,000 (S2.34).
// The limits, libraries and language come from k8s.io/apiserver, so that an expression has the same
// meaning as in a cluster.
//
// # Concurrency
//
// A Set is immutable and safe for concurrent use.
package condition
