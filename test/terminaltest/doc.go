// Package terminaltest gives tests a terminal to write to.
package terminaltest
