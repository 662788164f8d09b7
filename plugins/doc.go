// Package plugins has the built-in admission plugins of kube-apiserver 1.37, by
// upstream's own code, and merges them with the engine's plugins.
//
// # The table
//
// [All] is the table: every plugin with its default, the requests that concern it, the objects
// that it reads, and whether it can be served as a webhook. [Order] merges the table with the
// engine's own plugins into the one order of a server (S9.3, S19.2). [New] constructs a plugin.
//
// # In a plan and in a trace
//
// A plugin declares the requests that concern it, so that plans and traces have a step only for
// plugins that may change or reject the request. A plan predicts the verdict of a plugin where that has
// no effect: ResourceQuota reserves nothing for a plan. A plan does not call a plugin that calls
// other servers or always has effects.
//
// # Concurrency
//
// The table is never changed. The plugins are safe for concurrent use.
package plugins
