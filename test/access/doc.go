// Package access contains end-to-end tests of authentication and authorization.
package access
