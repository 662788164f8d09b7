// Aggregated is an example of an aggregated API server outside of gatehouse. It has its own resource: Painting,
// in the group gallery.example.com. It shares the admission of the main server: it calls webhooks that are
// registered there for paintings.
//
// The program is built on k8s.io/apiserver in the usual way. The dynamic admission is in admission.go, and
// needs only the packages admission, admission/announce, admission/snapshot and initialization. The README in
// this folder has the commands.
package main
