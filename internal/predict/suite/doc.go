// Package suite runs tests of policies, webhooks and whole chains of admission.
//
// # One judge
//
// A test is a request and what is expected of the answer. The request is judged by a server in
// this process, package check's World, which has the objects of the files around the tests.
// Nothing here judges: an outcome is the answer of that server, and what its trace says.
//
// # Isolation
//
// The World is made once, for all files with tests that have the same one. A test stores nothing.
// What it needs besides, such as the object that an update changes, is there for its request
// only. Labels of namespaces are the exception: tests that change these run in groups, one after
// the other.
//
// # Formats
//
// Besides the format of its own (parse.go), the package reads the tests of kyverno, gator and
// kaptest. What it cannot judge is skipped, with the reason.
package suite
