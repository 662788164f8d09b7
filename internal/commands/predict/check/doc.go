// Package check reports how a cluster would respond to the objects of a repository.
//
// # One way
//
// Run starts a stage and applies every object to it as kubectl apply does. A verdict is the response of the stage's
// server: this package makes no admission decisions.
//
// # Order
//
// Objects that others need come first: CRDs and namespaces, the objects that plugins read, params, policies with their
// bindings, then the rest (stage.AsApplied). Phases follow one another. Within a phase requests are concurrent, except
// requests whose outcome depends on one another. The verdicts are therefore the same in each run.
//
// # Webhooks
//
// Without Options.Call, no webhook is called. The plugins that call them are off, and package offline predicts which
// webhooks would be called for an object.
package check
