// Package after has the commands that look back: trace, blame, console and initializers show how
// admission handled past writes.
package after
