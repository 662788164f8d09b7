// Package discovery tells clients which groups, versions and resources a server has.
//
// The input is data: lists of group versions with their resources, one for built-in kinds, one for
// custom resources, and one for other servers. Whenever a list changes, all are merged into one
// immutable snapshot. Requests read the current snapshot.
//
// # Paths
//
// The paths are /api, /api/v1, /apis, /apis/GROUP and /apis/GROUP/VERSION. At /api and /apis a
// client may ask for everything in one answer, as an APIGroupDiscoveryList of
// apidiscovery.k8s.io/v2 (k8s.io/apiserver no longer supports v2beta1); that answer has an ETag,
// and a client that sends it back in If-None-Match gets 304 until something changes. Answers are
// JSON, YAML or protobuf.
//
// # Order
//
// Order is part of the answer: where two groups have a resource of the same name or short name,
// clients use the first group. Groups come by their priority, the highest first. Where priorities
// are equal, built-in groups come in the order they were given, and the others after them by name.
// The versions of a group come by their priority, too, and the first one is the preferred one.
// Custom versions of a built-in group come after its own versions of the same priority. A custom
// version never hides a built-in one. A group version of another server hides the same group
// version of this server.
package discovery
