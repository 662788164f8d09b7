//go:build !race

package admission

// randomSets is the default number of random sets in a test of the long run.
const randomSets = 10000
