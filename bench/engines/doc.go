// Package engines builds Gatekeeper as docs/test.md says, from an empty directory, and has it judge a suite by
// 'gatehouse test --engine'. With -kyverno it does so with Kyverno, by kyverno.sh and the recipe kyverno.yaml,
// which were not run yet: it becomes a recipe of the program when this test passes.
//
//	cd bench && go test ./engines
//
// The first run compiles the engine, which takes many minutes.
package engines
