// Package objects contains end-to-end tests of the API of objects: every verb, format, subresource and
// client.
package objects
