//go:build race

package harness

// race has servers run under the race detector, as the test does. What it finds stands in
// the log of the server, where it fails the test.
const race = true
