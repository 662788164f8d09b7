// Package counted knows which webhooks, policies and bindings metrics have series of, and has the
// series of those dropped that are gone.
package counted
