// Package clustersnapshot stores the objects of a cluster that affect admission: CRDs, namespaces, registrations,
// policies and their params, quotas, limits, classes, service accounts and roles.
//
// Take reads a snapshot from a cluster, with lists only. Cluster.Unread lists the resources that the caller may not
// read. Take never reads Secrets. Write and Read store a snapshot in a file, which is the same for the same cluster
// state.
package clustersnapshot
