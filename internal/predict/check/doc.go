// Package check says what a cluster would answer to the objects of a repository.
//
// # One way
//
// Run makes a stage and applies every object to it as kubectl apply does. A verdict is the
// answer of the stage's server: this package does not judge objects.
//
// # Order
//
// Objects that others need come first: definitions and namespaces, what plugins read, params,
// policies with their bindings, then the rest (stage.AsApplied). Phases follow one another. Within
// a phase requests are concurrent, but for those whose outcome depends on one another.
// The verdicts are therefore the same in each run.
//
// # Webhooks
//
// Without Options.Call, no webhook is called. The plugins that call them are off, and
// package offline says which webhooks would be called for an object.
package check
