// Package agent observes the admission of a cluster that another API server serves. It receives the audit
// events of that API server, converts them to traces, and serves the latest ones as admissiontraces of
// gatehouse.dev. It is an aggregated API server behind the cluster's API server, which authenticates and
// authorizes its clients (S32).
package agent
