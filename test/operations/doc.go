// Package operations tests that what the pages of operations in docs tells administrators to do
// works: the tests bring a server into the situation that a section is about, run the
// commands of that section as they stand there, and look at what came of it.
package operations
