// Package terminaltest opens a terminal for tests.
package terminaltest
