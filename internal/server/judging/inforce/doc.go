// Package inforce holds the answer to a write of a registration until this server judges
// requests by the registration.
package inforce
