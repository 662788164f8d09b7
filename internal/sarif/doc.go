// Package sarif writes findings as SARIF 2.1.0, the format in which code hosts and editors
// take the results of static analysis.
//
// A Run is one run of one tool: its rules, what it found, and what it could not look at. Write
// writes it as a log with this run only, indented, and the same for the same Run. It stays within the
// limits that GitHub sets for uploads: of more than MaxResults findings it writes the first
// ones, and says so in a notification.
//
// All functions are pure and safe for concurrent use.
package sarif
