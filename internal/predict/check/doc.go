// Package check says what a cluster would answer to the objects of a repository.
//
// # One way
//
// Run starts a server in this process, with a temporary directory and the admission plugins
// of kube-apiserver, and applies every object to it as kubectl apply does. A verdict is the
// answer of that server: this package does not judge objects.
//
// # Order
//
// Objects that others need come first (order.go): definitions and namespaces, what plugins
// read, params, policies with their bindings, then the rest. Stages follow one another. Within
// a stage requests are concurrent, but for those whose outcome depends on one another.
// The verdicts are therefore the same in each run.
//
// # What stands in for the controllers of a cluster
//
// A namespace gets its service account "default", a quota its status, and an aggregated role
// its rules (furnish.go). No controller runs.
//
// # Webhooks
//
// Without Options.Call, no webhook is called. The plugins that call them are off, and
// package offline says which webhooks would be called for an object. Initializers never act.
package check
