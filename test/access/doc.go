// Package access holds end-to-end tests of who callers are and what they may do.
package access
