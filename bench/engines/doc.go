// Package engines builds Gatekeeper and Kyverno as docs/suites.md says, each from an empty directory, and has them judge
// suites by 'gatehouse test --engine'.
//
//	cd bench && go test ./engines -timeout 2h
//
// The first run compiles the engines, which takes many minutes.
package engines
