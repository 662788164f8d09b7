// Package announce reports to a main server which registrations another server enforces.
//
// A server that judges its requests by the registrations of a main server announces itself
// there as an AdmissionServer of gatehouse.dev. Announcer writes the object, which lasts for
// its lifetime, and writes it again before the lifetime is over. The registrationstates of the
// main server then show the server among their replicas, and report a registration as in force
// only when the announced server enforces it, too (S22.20).
//
// That is sound because the server evaluates requests only against what it read while its
// announcement was sure to last: the Reader that an Announcer returns fails otherwise. The server
// can start while the main server rejects the announcement, or does not answer: Run retries, and
// until it succeeds requests that need admission get 503. So the main server waits for every server
// that evaluates requests.
//
// Log is the part that does not depend on where the announcement is written.
package announce
