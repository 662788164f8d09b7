// Package solve finds requests for which an expression of a policy has a wanted value.
//
// # Search
//
// The search walks the syntax tree of the expression backwards, from the wanted value to the fields of the request: both
// operands of && must be true, one element of all() must be false, a compared field gets a value on the other side of the
// constant. Each step evaluates its part of the expression with the language of API servers, so that a part that has the
// wanted value already changes nothing, and a changed field that does not have the wanted effect is dropped. Variables are
// replaced with their expressions, and the variables of macros with elements, so that each part of an expression is an
// expression of its own.
//
// # Limits
//
// The number of evaluations is bounded. A found request is a candidate: only a server knows defaults and the validation of
// the API, and decides.
package solve
