// Package dispatch runs a plan: it calls the hooks that apply to a request, changes the object
// as they ask, and decides whether the request may go on.
//
// Its part of a plan is the list of candidates that package plan found in a snapshot for
// a request: entries of one source whose rules match, in order. Package plan makes
// every decision. A Dispatcher runs the candidates of one source, in one pass
// over one request, with Run.
//
// # The mutating pass
//
// Hooks are called one after the other (S5.1). At its turn, a step's selectors and conditions
// see the object as the earlier hooks left it, and decide whether the hook is called. A patch
// is applied to the object in the kind of the review (S5.4). The first rejection ends the pass.
// A pass may run once more; the request's reinvocation context keeps what the second pass must
// know of the first one (S5.16 to S5.24).
//
// Hooks that promise that an additional call does no harm may be called before their turn; the
// type ahead says when, and why the result is the same.
//
// # The validating pass
//
// All steps are decided first, then all hooks that apply are called at the same
// time, and all are awaited (S6.1 to S6.3). The rejection of the first hook in
// order is returned, with the others as its causes (S6.4). External hooks are
// run the same way (S12.9).
//
// # What is done once
//
// Until a hook changes the object, it is converted and encoded only once per kind. The reviews
// for hooks share those bytes (package objects). Only the type budget divides a request's time.
// A trace.Run records everything that happened; metrics, audit annotations, warnings and the
// log are read from it.
//
// # Concurrency
//
// A Dispatcher is safe for concurrent use. Goroutines are started for parallel
// calls only, and all have ended when Run returns. A panic while a hook is called
// fails that call (S7.12).
package dispatch
