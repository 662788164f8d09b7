// Package boundstest checks that every endpoint of an API server bounds its requests, for tests of packages that serve.
package boundstest
