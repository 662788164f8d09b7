// Package v1 is version v1 of the API group gallery.example.com, the version that
// is stored.
package v1
