// Package builtin makes the endpoints of the built-in kinds: upstream's, including the
// registrations, and the server's own.
package builtin
