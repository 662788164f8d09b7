//go:build race

package admission

// randomSets is the default number of random sets in a test of the long run. The race detector makes each several
// times as slow.
const randomSets = 2000
