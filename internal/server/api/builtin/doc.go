// Package builtin makes the endpoints of the kinds that are always there: upstream's, the
// registrations among them, and the server's own.
package builtin
