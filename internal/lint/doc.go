// Package lint finds dangers in a configuration of admission, before they do harm.
//
// # A world, rules, findings
//
// A World is plain data: a Snapshot of registrations, the known objects around them, such as
// services and the pods behind them, and why other objects cannot be seen. A Rule is a value, in
// a file with the rules about the same subject. The directory rules has a text for each: why it
// exists, what to do about it, an example that breaks it and one that does not. Check runs rules
// over a world and returns a Report: the findings, the rules that ran, and the parts that could not
// be seen. A report without findings does not mean that the configuration is safe.
//
// # No matching of its own
//
// Package plan decides whether a webhook applies to a probe: a request as the cluster itself
// makes it, such as the renewal of a node's lease by that node. Package expression finds the
// result that an expression has for every request.
//
// # Levels
//
// An error is a configuration that stops the cluster, or that fails each time. A warning is
// one that will do harm when something else goes wrong. A note is advice. A finding that depends
// on a part that cannot be seen is never an error.
//
// # Concurrency
//
// Check changes nothing of its world and starts no goroutine that outlives it. Rules may be
// used by several goroutines.
package lint
