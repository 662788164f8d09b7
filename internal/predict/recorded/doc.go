// Package recorded reads and writes requests that were made to a cluster: its own format, audit
// logs, reviews and traces. What a source lacks is counted, and never guessed.
package recorded
