// Package controllers contains end-to-end tests of upstream's controllers in the server, and of namespaces.
package controllers
