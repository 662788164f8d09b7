// Package harness runs gatehouse for tests.
//
// Start runs the real binary as a separate process, with its own data directory and a free port. Shared
// returns a server that is shared by all tests of a test process that do not disturb each other. A Server
// provides client configurations, plain HTTP, namespaces and kubectl, and can be stopped, killed and
// restarted on the same data. Package inside runs a server in the test process.
//
// A test binary that uses the package has a TestMain that calls Main: it stops the shared server, and fails
// if a server logged a panic or a process is still running.
//
// The binary is built from the module's source, unless the environment variable GATEHOUSE_BINARY names one.
// All test processes use the same file until a source changes. Under the race detector, the server is built
// with it, too.
package harness
