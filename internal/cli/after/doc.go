// Package after has the commands that look back: trace, blame, console and initializers show what
// admission did with what was written.
package after
