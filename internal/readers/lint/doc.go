// Package lint finds dangers in the configuration of admission before they cause an outage.
//
// # Input, rules, findings
//
// An Input is plain data: a Snapshot of registrations, the known objects around them, such as
// services and their pods, and the reasons why other objects cannot be seen. A Rule is a value, in
// a file with the rules about the same subject. The directory rules has a text for each rule: its
// reason, the remedy, a failing and a passing example. Check runs rules over an Input and returns a
// Result: the findings, the rules that ran, and the parts that could not be seen. A report without
// findings does not mean that the configuration is safe.
//
// # Matching
//
// Lint has no matching code of its own. Package plan decides whether a webhook applies to a probe,
// a request that the cluster itself makes, such as the renewal of a node's lease by that node.
// Package expression finds results that an expression has for every request.
//
// # Levels
//
// An error is a configuration that stops the cluster, or that fails each time. A warning is a
// configuration that becomes harmful after another failure. A note is advice. A finding that
// depends on a part that cannot be seen is never an error.
//
// # Concurrency
//
// Check does not change its Input and starts no goroutine that outlives it. Rules may be used by
// several goroutines.
package lint
