// Package webhook serves compiled-in admission plugins as webhooks, for clusters whose
// API server does not run them and cannot be configured to.
//
// [New] checks the options. [Server.Registrations] returns the registrations, which say which
// requests the cluster sends. [Server.Run] registers, serves reviews, health and metrics, and
// ends with its context. The rules come from plugins.About of each plugin.
//
// A plugin judges the same request that it would judge inside the API server: the review's
// objects become the internal types that upstream's code expects, and the plugin's changes
// go back as a JSON patch. Only the place in the order differs: webhooks run behind the
// compiled-in plugins of the cluster.
package webhook
