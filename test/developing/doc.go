// Package developing contains end-to-end tests of gatehouse dev: real programs, and a server that calls them.
package developing
