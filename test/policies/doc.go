// Package policies holds end-to-end tests of admission policies, validating and mutating.
package policies
