// Package policies contains end-to-end tests of validating and mutating admission policies.
package policies
