// Package staleseries tracks the webhooks, policies and bindings that have metric series, and drops
// the series of deleted ones.
package staleseries
