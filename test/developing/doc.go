// Package developing holds end-to-end tests of gatehouse dev: real programs, with a server that calls them.
package developing
