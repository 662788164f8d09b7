//go:build race

package harness

// race makes servers run under the race detector, as the test does. A detected race appears in the log of the
// server and fails the test.
const race = true
