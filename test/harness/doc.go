// Package harness runs gatehouse for tests.
//
// Start runs the real binary as a process of its own, with its own data
// directory and a free port; Shared is one such server for all tests of a test
// process that do not disturb one another. A Server gives client configurations,
// plain HTTP, namespaces and kubectl, and can be stopped, killed and restarted
// on the same data. Package inside runs a server inside the test.
//
// A test binary that uses the package has a TestMain that calls Main: it stops
// the shared server and fails when a server wrote a panic to its log or a
// process was left behind.
//
// The binary is built from the module's source, unless the environment variable
// GATEHOUSE_BINARY names one. All test processes use the same file until a source changes.
// Under the race detector, the server runs under it, too.
package harness
