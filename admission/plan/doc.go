// Package plan decides what admission does with a request, and says why.
//
// # From a snapshot to a decision
//
// Candidates takes a snapshot and a request, and returns the entries of a source whose rules
// match, in order (S5.1). A request that nothing matches costs no allocation. At a candidate's
// turn, Decide says whether it applies, by namespaceSelector, objectSelector and match
// conditions, in this order (S2.1). These see the objects as earlier steps left them, so the
// decision cannot be made in advance (S2.20). Beforehand says why a webhook that applies cannot
// be called, and Forgives whether the request goes on after a failure. Initializers returns the
// initializers that a new object gets. Running requests use these functions.
//
// New calls the same functions for both passes at once, in the order of a chain, and returns a
// Plan: plain data with a stable JSON form. No test has a second implementation.
//
// # Reasons
//
// Every entry that does not apply has a Reason. A Reason is a value, and its text is made when
// it is read. A fact that the caller may not read, such as the labels of a namespace, is
// unknown: an Input returns an error that is ErrUnknown, and the plan shows it.
//
// # Errors
//
// Decide's errors reject the request. All of them are API statuses, also *ConditionError.
//
// # Concurrency
//
// The functions of this package keep no state, start no goroutines, do no I/O and change nothing,
// except by calling the functions of an Input or a Link.
package plan
