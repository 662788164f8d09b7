// Package plan decides which hooks apply to a request, in which order, and why.
//
// # From a snapshot to a decision
//
// For takes a snapshot and a request, and returns the steps: the hooks whose rules
// match, in order (S5.1). A request that nothing matches costs no allocation. At a
// step's turn, Decide says whether its hook is called, by namespaceSelector,
// objectSelector and match conditions, in this order (S2.1); they see the objects as
// the steps before left them, which is why this cannot be known in advance (S2.20).
// Initializers says which initializers a new object gets.
//
// # Reasons
//
// Every "no" has a Reason, which is a value: its text is made when somebody reads
// it. Explain runs For and Decide for all hooks, those whose rules do not match
// included, and Print writes what it says as a text. There is no second
// implementation of any test.
//
// # Errors
//
// Decide's errors are final, and API statuses, except *ConditionError, which is
// subject to the hook's failure policy (S2.32).
//
// # Concurrency
//
// Everything here is a function of its arguments. Nothing is kept, nothing is
// changed, and no goroutine is started; I/O happens only in what Input has for it.
package plan
