// Package controllers holds end-to-end tests of upstream's controllers as the server runs them, and
// of namespaces.
package controllers
