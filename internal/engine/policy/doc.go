// Package policy evaluates the expressions of admission policies.
//
// A Policy is a ValidatingAdmissionPolicy or a MutatingAdmissionPolicy with expressions that are
// ready for evaluation. Their Input is a request in one kind, and one param. Neither depends on the
// binding, so one evaluation serves all bindings with the same param.
//
// Validate evaluates a ValidatingAdmissionPolicy: match conditions, validations, the messages of
// violated validations, and audit annotations, in this order (S17.4). It returns the results.
// Package plan applies failure policies and the actions of bindings.
//
// # Concurrency
//
// A Policy is immutable and safe for concurrent use. An Input is for one evaluation at a time.
package policy
