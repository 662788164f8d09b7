// Package v1beta1 is version v1beta1 of the API group gallery.example.com. It calls the artist the painter.
package v1beta1
