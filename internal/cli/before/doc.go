// Package before has the commands that look ahead: explain, check, lint, test and snapshot say what
// admission would do before something is written.
package before
