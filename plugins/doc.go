// Package plugins has the compiled-in admission plugins of kube-apiserver 1.37, by
// upstream's own code, and puts them among those of the engine.
//
// # What there is
//
// [All] is the table: every plugin with its default, what it is about, what it reads, and
// whether it can be served as a webhook. [Order] merges the table with the engine's own
// plugins into the one order of a server (S9.3, S19.2). [New] makes the plugins that run.
//
// # In a plan and in a trace
//
// A plugin says which requests it is about, so that plans and traces have a step for
// each plugin that may have an opinion, and for no other. Its verdict is predicted where
// that has no effect: ResourceQuota reserves nothing for a plan, and a plugin that asks
// others or counts is not asked.
//
// # Concurrency
//
// The table is never changed. The plugins are safe for concurrent use.
package plugins
