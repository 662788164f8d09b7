// Package condition compiles and evaluates match conditions: CEL expressions that
// decide, last of all, whether a hook is asked about a request.
//
// Compile turns the conditions of one hook or policy into a Set, once per version of its
// registration (S2.37). Eval evaluates a Set for one request and says which condition is false,
// or which error happened; failure policies are not its concern. Package expression decides
// which variables and functions an expression may use, and their values for a request.
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
