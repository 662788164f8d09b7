// Package webhook serves built-in admission plugins as webhooks, for clusters whose
// API server does not run them and cannot be configured to.
//
// [New] checks the options. [Server.Registrations] returns the webhook configurations, which
// select the requests that the cluster sends. [Server.Run] registers, serves reviews, health and
// metrics, and ends with its context. The rules come from plugins.About of each plugin.
//
// A plugin gets the same request as inside the API server: the review's objects are converted
// to the internal types that upstream's code expects, and the plugin's changes are returned as a
// JSON patch. Only the place in the order differs: webhooks run after the built-in admission
// plugins of the cluster.
package webhook
