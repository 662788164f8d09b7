// Package clustersnapshot keeps what a cluster judges objects by: definitions, namespaces,
// registrations, policies and their params, quotas, limits, classes, service accounts and
// roles.
//
// Take reads it from a cluster, by listing only. What the caller may not read is in
// Snapshot.Unread. Secrets are never read. Write and Read keep a snapshot in a file, which is
// the same for the same cluster state.
package clustersnapshot
