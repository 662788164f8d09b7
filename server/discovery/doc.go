// Package discovery tells clients which groups, versions and resources a server
// has.
//
// What is served is data: a list of group versions with their resources, one for
// built-in kinds and one for custom ones. The two are merged into one immutable
// picture whenever the custom ones change, and requests read the picture that is
// current.
//
// # Paths
//
// The paths are /api, /api/v1, /apis, /apis/GROUP and /apis/GROUP/VERSION. At
// /api and /apis a client may ask for everything in one answer, as an
// APIGroupDiscoveryList of apidiscovery.k8s.io/v2 (the library has given up
// v2beta1); that answer has an ETag, and a client that sends it back in
// If-None-Match gets 304 until something changes. Answers are JSON, YAML or
// protobuf.
//
// # Order
//
// Order is part of the answer: where two groups have a resource of the same name
// or short name, clients take the group that stands first. Built-in groups come
// in the order they were given, custom groups after them by name. The first
// version of a group is the preferred one. Custom versions of a built-in group
// come after its own versions, and custom resources of a built-in version after
// its own resources; a built-in resource is never hidden by a custom one.
package discovery
