// Package suite runs tests of policies, webhooks and whole admission chains.
//
// # Evaluation
//
// A test is a request with expectations about the response. The request is evaluated by a server in this process, a
// Stage of package stage, which has the objects of the files around the tests. This package makes no admission
// decisions: an outcome is the response of that server, with its trace.
//
// # Isolation
//
// A test environment is set up once for all files that share it. Tests store nothing. Objects that a single test needs,
// such as the object that an update changes, exist for its request only. Labels of namespaces are the exception: tests
// that change them run in groups, one after the other.
//
// # Formats
//
// In addition to its own format (parse.go), the package reads the tests of kyverno, gator and kaptest. Unsupported
// tests are skipped, with the reason.
package suite
