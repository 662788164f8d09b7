// Package auditlog makes traces of the events that an API server writes to its audit log. A trace
// says of each fact whether the log has it, whether it follows from registrations, or that it is unknown.
package auditlog
