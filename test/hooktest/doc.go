// Package hooktest is an HTTPS server with webhooks, for tests of packages that
// call them.
package hooktest
