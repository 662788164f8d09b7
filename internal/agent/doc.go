// Package agent watches the admission of a cluster that another API server serves. It takes the audit events of
// the API server, makes traces of them, and serves the latest ones as admissiontraces of gatehouse.dev: an API
// server of its own, behind the one of the cluster, which says who callers are and what they may do (S32).
package agent
