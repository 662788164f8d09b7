// Aggregated is an example of an API server outside of gatehouse, one as a cluster
// aggregates, with a resource of its own: Painting, in the group
// gallery.example.com. Its admission is that of the main server: whoever registers
// a webhook there for paintings has it called here.
//
// The program is built on k8s.io/apiserver in the usual way. What makes its
// admission dynamic is in admission.go, and takes nothing but the packages
// admission and admission/snapshot. The README in this folder says what to type.
package main
