// Package staleseries knows of which webhooks, policies and bindings metrics have series, and drops
// the series of those that are gone.
package staleseries
