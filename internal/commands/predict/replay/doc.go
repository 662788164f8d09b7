// Package replay evaluates recorded requests, or existing objects, against the policies and webhooks of a baseline and
// against those with a change, and reports the differences.
package replay
