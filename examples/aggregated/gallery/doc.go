// Package gallery has the internal types of the API group gallery.example.com. Every served version is
// converted to and from them. Packages v1 and v1beta1 have the versions for clients.
package gallery
