//go:build !race

package admission

// randomSets is the default number of random sets in a test.
const randomSets = 10000
