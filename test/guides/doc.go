// Package guides contains end-to-end tests that follow README.md and the guides in docs.
package guides
