// Package requestlog reads and writes requests that were made to a cluster: its own format, audit logs, reviews and
// traces. Requests that a source has only in part are counted, and missing parts are never guessed.
package requestlog
