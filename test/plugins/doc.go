// Package plugins holds end-to-end tests of the compiled-in plugins, inside the server and as
// webhooks.
package plugins
