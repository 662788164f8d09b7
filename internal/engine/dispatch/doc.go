// Package dispatch runs a plan: it calls the hooks that apply to a request, makes
// of the object what they want, and decides whether the request may go on.
//
// Its part of a plan is the list of candidates that package plan found in a snapshot for
// a request: entries of one source whose rules match, in order. Package plan makes
// every decision. A Dispatcher runs the candidates of one source, in one pass
// over one request, with Run.
//
// # The mutating pass
//
// Hooks are called one after the other (S5.1). At its turn, a step's selectors
// and conditions look at the object as the hooks before left it, and decide
// whether the hook is called. A patch is applied to the object in the kind the
// hook was sent (S5.4). The first rejection ends the pass. A pass may be run once
// more; what it must know of the first one lies in the request's reinvocation
// context (S5.16 to S5.24).
//
// Hooks that promise to do no harm may be called before their turn; the type
// ahead says when, and why nobody can tell from the result.
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
// The object is converted once per kind and encoded once per kind, however many
// hooks want it, until a hook changes it; the reviews sent to hooks of the same
// version share those bytes (package objects). A request's time is divided in
// one place, type budget. Everything that happened is written into a
// trace.Run, which is where metrics, audit annotations, warnings and the log
// are read from.
//
// # Concurrency
//
// A Dispatcher is safe for concurrent use. Goroutines are started for parallel
// calls only, and all have ended when Run returns. A panic while a hook is called
// fails that call (S7.12).
package dispatch
