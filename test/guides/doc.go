// Package guides holds end-to-end tests that do what README.md and the guides in docs say.
package guides
