// Package plan decides what admission does with a request, and says why.
//
// # From a snapshot to a decision
//
// Candidates takes a snapshot and a request, and returns the entries of a source whose
// rules match, in order (S5.1). A request that nothing matches costs no allocation. At a
// candidate's turn, Decide says whether it applies, by namespaceSelector, objectSelector
// and match conditions, in this order (S2.1); they see the objects as the steps before
// left them, which is why this cannot be known in advance (S2.20). Beforehand says what
// keeps a webhook that applies from being called, and Forgives what a failure means for
// the request. Initializers says which initializers a new object gets. These functions
// run admission.
//
// New asks the same functions for both passes at once, in the order of a chain, and
// returns a Plan: plain data with a stable JSON form. There is no second implementation
// of any test.
//
// # Reasons
//
// Every "no" has a Reason. A Reason is a value, and its text is made when it is read. A fact
// that the caller may not read, such as the labels of a namespace, is unknown: an Input
// returns an error that is ErrUnknown, and the plan has it.
//
// # Errors
//
// Decide's errors reject the request. They are API statuses, or a *ConditionError, which
// is one, too.
//
// # Concurrency
//
// Everything here is a function of its arguments. Nothing is kept, nothing is
// changed, and no goroutine is started; I/O happens only in what Input and Link have for
// it.
package plan
