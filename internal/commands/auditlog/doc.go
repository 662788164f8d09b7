// Package auditlog converts the audit events of an API server to traces. A trace marks each fact as
// recorded in the log, derived from registrations, or unknown.
package auditlog
