// Aggregated is an example of an API server outside of gatehouse, one as a cluster
// aggregates, with a resource of its own: Painting, in the group
// gallery.example.com. Its admission is that of the main server: a webhook that is
// registered there for paintings is called here.
//
// The program is built on k8s.io/apiserver in the usual way. What makes its
// admission dynamic is in admission.go, and takes nothing but the packages
// admission and admission/snapshot. The README in this folder says what to type.
package main
