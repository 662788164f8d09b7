// Package boundstest checks that every endpoint of an API server limits its requests, for tests of packages
// that serve.
package boundstest
