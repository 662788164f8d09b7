// Package pagetest compares the generated pages of the documentation with their sources, for the tests that
// generate them.
package pagetest
