// Package harness runs gatehouse for tests.
//
// Start runs the real binary as a process of its own, with its own data
// directory and a free port; Shared is one such server for all tests of a test
// process that do not disturb one another; InProcess runs the server inside the
// test, where the race detector sees it. A Server gives client configurations,
// plain HTTP, namespaces and kubectl, and can be stopped, killed and restarted
// on the same data.
//
// A test binary that uses the package has a TestMain that calls Main: it stops
// the shared server and fails when a server wrote a panic to its log or a
// process was left behind.
//
// The binary is built once per test process from the module's source, unless
// the environment variable GATEHOUSE_BINARY names one. With
// GATEHOUSE_IN_PROCESS set, the shared server runs inside the test process.
package harness
