// Package engines builds Kyverno and Gatekeeper as docs/test.md says, from an empty directory, and has them judge
// suites of their own by 'gatehouse test --engine'.
//
//	cd bench && go test ./engines
//
// The first run compiles both, which takes many minutes.
package engines
