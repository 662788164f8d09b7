// Package announce reports to a main server which webhook configurations and policies another
// server enforces.
//
// A server that enforces the registrations of a main server announces itself there as an
// AdmissionServer of gatehouse.dev. Announcer writes the object, which has a lifetime, and writes
// it again before the lifetime ends. The registrationstates of the main server then list the server
// among their replicas, and report a registration as active only when the announced server enforces
// it, too (S22.20).
//
// This is sound because the server evaluates requests only against reads during which its
// announcement was guaranteed to last: otherwise the Reader of an Announcer fails. The server can
// start while the main server rejects the announcement, or does not answer: Run retries, and until
// it succeeds requests that need admission get 503. So the main server waits for every server that
// evaluates requests.
//
// Log is the part that is independent of the place of the announcement.
package announce
