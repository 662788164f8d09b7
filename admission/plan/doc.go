// Package plan decides how admission handles a request, and gives the reasons.
//
// # From a snapshot to a decision
//
// Candidates takes a snapshot and a request, and returns the entries of a source whose rules match,
// in order (S5.1). A request without matches costs no allocation. At a candidate's turn, Decide
// reports whether it applies, by namespaceSelector, objectSelector and match conditions, in this
// order (S2.1). These see the objects after all earlier steps, so the decision cannot be made in
// advance (S2.20). Beforehand returns the reason why a webhook that applies cannot be called, and
// Forgives reports whether the request continues after a failure. Initializers returns the
// initializers of a new object. Running requests use these functions.
//
// New calls the same functions for both passes at once, in the order of a chain, and returns a
// Plan: plain data with a stable JSON form. No test has a second implementation.
//
// # Reasons
//
// Every entry that does not apply has a Reason. A Reason is a value, and its text is made when it
// is read. A fact that the caller may not read, such as the labels of a namespace, is unknown: an
// Input returns an error that wraps ErrUnknown, and the plan reports it.
//
// # Errors
//
// Decide's errors reject the request. All of them are API statuses, including *ConditionError.
//
// # Concurrency
//
// The functions of this package keep no state, start no goroutines, do no I/O and change nothing,
// except by calling the functions of an Input or a Link.
package plan
