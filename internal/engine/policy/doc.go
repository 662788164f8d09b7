// Package policy evaluates the expressions of admission policies.
//
// A Policy is a ValidatingAdmissionPolicy or a MutatingAdmissionPolicy whose expressions
// are ready to be evaluated. Their Input is a request in one kind,
// and one param. The bindings of a policy change neither, so that one evaluation
// serves all of them.
//
// Validate evaluates a ValidatingAdmissionPolicy: match conditions, validations, the
// messages of what was violated, and audit annotations, in this order (S17.4). It says
// what was found and knows neither of failure policies nor of what bindings do about it.
//
// # Concurrency
//
// A Policy is immutable and safe for concurrent use. An Input is for one evaluation at a
// time.
package policy
