// Package clustersnapshot keeps the objects by which a cluster judges others: definitions,
// namespaces, registrations, policies and their params, quotas, limits, classes, service accounts
// and roles.
//
// Take reads a snapshot from a cluster, with lists only. Cluster.Unread has the resources that
// the caller may not read. Take never reads Secrets. Write and Read keep a snapshot in a file,
// which is the same for the same cluster state.
package clustersnapshot
