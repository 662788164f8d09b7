// Package plugins contains end-to-end tests of the built-in admission plugins, in the server and as webhooks.
package plugins
