// Package v1beta1 is version v1beta1 of the API group gallery.example.com, which
// called the artist the painter.
package v1beta1
