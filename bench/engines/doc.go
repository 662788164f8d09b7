// Package engines builds Gatekeeper and Kyverno as described in docs/suites.md, each from an empty directory, and
// runs suites on them with 'gatehouse test --engine'.
//
//	cd bench && go test ./engines -timeout 2h
//
// The first run compiles the engines, which takes many minutes.
package engines
