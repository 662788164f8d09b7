// Package dispatch runs a plan: it calls the webhooks that apply to a request, applies their
// patches to the object, and decides whether the request is allowed.
//
// Its part of a plan is the list of candidates that package plan found in a snapshot for a request:
// entries of one source with matching rules, in order. Package plan makes every decision.
// Dispatcher.Run runs the candidates of one source, in one pass over one request.
//
// # The mutating pass
//
// Webhooks are called one after the other (S5.1). At its turn, a step's selectors and conditions
// see the object after all earlier webhooks, and decide whether the webhook is called. A patch is
// applied to the object in the kind of the review (S5.4). The first rejection ends the pass. A pass
// may run once more; the request's reinvocation context keeps the state of the first pass for the
// second (S5.16 to S5.24).
//
// Webhooks that declare additional calls harmless may be called before their turn; the type ahead
// explains when, and why the result is the same.
//
// # The validating pass
//
// All steps are decided first, then all webhooks that apply are called concurrently, and all are
// awaited (S6.1 to S6.3). The rejection of the first webhook in order is returned, with the others
// as its causes (S6.4). External hooks are run the same way (S12.9).
//
// # Work done once
//
// Until a webhook changes the object, it is converted and encoded only once per kind. The reviews
// for webhooks share those bytes (package objects). Only the type budget divides a request's time.
// A trace.Run records all results; metrics, audit annotations, warnings and the log are derived
// from it.
//
// # Concurrency
//
// A Dispatcher is safe for concurrent use. Goroutines are started for parallel calls only, and all
// have ended when Run returns. A panic during the call of a webhook fails that call (S7.12).
package dispatch
