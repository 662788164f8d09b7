// Package revision adds to the response to a write the revision of the registrations that the write
// was evaluated against.
package revision
