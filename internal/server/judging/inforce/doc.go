// Package inforce delays the response to a write of a registration until this server enforces the
// registration.
package inforce
