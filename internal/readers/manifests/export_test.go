package manifests

import "testing"

// SetMost sets the largest number of documents for a test, and returns the number before.
func SetMost(t *testing.T, n int) (before int) {
	before, most = most, n
	t.Cleanup(func() { most = before })
	return before
}
