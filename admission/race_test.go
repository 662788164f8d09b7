//go:build race

package admission

// randomSets is how many random sets a test makes unless told otherwise. The race detector
// makes each several times as slow.
const randomSets = 2000
