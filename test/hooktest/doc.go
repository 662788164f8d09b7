// Package hooktest provides an HTTPS server with webhooks, for tests of packages that call webhooks.
package hooktest
