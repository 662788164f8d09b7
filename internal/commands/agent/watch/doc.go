// Package watch finds problems in a cluster that another API server serves: it lints the registrations when
// they change, and evaluates the stored objects against the cluster's policies. It publishes the findings as
// reports in the cluster, events and metrics.
//
// Among several processes with the same Lease, only the leader works. It writes only its own reports, its
// events and the Lease.
package watch
