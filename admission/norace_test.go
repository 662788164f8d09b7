//go:build !race

package admission

// randomSets is how many random sets a test makes unless told otherwise.
const randomSets = 10000
