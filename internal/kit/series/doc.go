// Package series drops metric series whose labels name removed kinds, webhooks or policies.
//
// The libraries that the server is built on keep a series for each kind, webhook and policy that has
// ever existed, until the process ends. Their metrics are not exported, but the registry lists them,
// and returns an existing metric as the error of registering an equal one.
package series
