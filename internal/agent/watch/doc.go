// Package watch looks for what is wrong in a cluster that another API server serves: it runs lint over the
// registrations when they change, and judges the objects by the policies of the cluster. What it finds becomes
// reports of the cluster, events and metrics.
//
// Of several processes with the same Lease, one does this. It writes its own reports, events and the Lease, and
// nothing else.
package watch
