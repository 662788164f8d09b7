// Package gallery has the API group gallery.example.com as the server keeps it in
// memory: one internal form of a painting, which every served version is
// converted to and from. Packages v1 and v1beta1 are what clients see.
package gallery
