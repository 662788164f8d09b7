// Package condition compiles and evaluates match conditions: CEL expressions that
// decide, last of all, whether a hook is asked about a request.
//
// Compile turns the conditions of one hook or policy into a Set, once per version of its
// registration (S2.37). Eval evaluates a Set for one request and says which condition is
// false, or what went wrong; it does not know of failure policies. Package
// expression decides what an expression may use, and what it sees of a request.
//
// # Limits
//
// An expression may cost 1,000,000 units, all conditions of a hook together
// 2,500,000 (S2.34). The limits, the libraries and the language are those of
// k8s.io/apiserver, so that an expression means here what it means in a cluster.
//
// # Concurrency
//
// A Set is immutable and safe for concurrent use.
package condition
