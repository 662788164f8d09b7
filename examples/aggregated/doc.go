// Aggregated is an example of an API server outside of gatehouse, one as a cluster
// aggregates, with a resource of its own: Painting, in the group
// gallery.example.com. Its admission is that of the main server: a webhook that is
// registered there for paintings is called here.
//
// The program is built on k8s.io/apiserver in the usual way. The
// dynamic admission is in admission.go, and needs only the packages admission,
// admission/announce, admission/snapshot and initialization. The README in this folder says what to type.
package main
