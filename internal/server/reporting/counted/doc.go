// Package counted knows which webhooks and policies metrics have series of, and has the series of
// those dropped that are gone.
package counted
