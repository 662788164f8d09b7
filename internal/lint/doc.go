// Package lint finds what is dangerous in a configuration of admission, before it happens.
//
// # A world, rules, findings
//
// A World is plain data: a Snapshot of registrations, what is known of the place around
// them, such as services and the pods behind them, and why the rest cannot be seen. A Rule
// is a value, in a file of its own: its name, why it exists, what to do about it, an example
// that breaks it and one that does not. Check runs rules over a world and returns a Report:
// the findings, which rules ran, and what could not be seen. A report without findings says
// nothing more than that.
//
// # No matching of its own
//
// Whether a webhook applies to a request is asked of package plan, with a probe: a request
// as the cluster itself makes it, such as the renewal of a node's lease by that node. What an
// expression gives for every request is asked of package expression.
//
// # Levels
//
// An error is a configuration that stops the cluster, or that fails each time. A warning is
// one that will do harm when something else goes wrong. A note is advice. A finding that
// depends on what cannot be seen is never an error.
//
// # Concurrency
//
// Check changes nothing of its world and starts no goroutine that outlives it. Rules may be
// used by several goroutines.
package lint
